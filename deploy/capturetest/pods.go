// SPDX-License-Identifier: Apache-2.0

package capturetest

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/report"
)

// ports are the ports of the server's application.
type ports struct {
	captured       uint16 // by both proxies
	directOutbound uint16 // excluded from capture by the client's annotations
	directInbound  uint16 // excluded from capture by the server's annotations
}

// choosePorts returns ports that the operator's configuration does not exclude from capture.
func choosePorts(mesh config.Mesh) ports {
	var free []uint16
	for port := uint16(8080); len(free) < 3; port++ {
		if !slices.Contains(mesh.ExcludeOutboundPorts, port) && !slices.Contains(mesh.ExcludeInboundPorts, port) {
			free = append(free, port)
		}
	}
	return ports{free[0], free[1], free[2]}
}

const (
	program     = "/capture-cni-node"
	application = "application"
)

func (r *run) server() *corev1.Pod {
	command := []string{program, "test-pod", "server"}
	for _, port := range []uint16{r.ports.captured, r.ports.directOutbound, r.ports.directInbound} {
		command = append(command, fmt.Sprintf("--port=%d", port))
	}
	pod := r.pod(report.TestServer, r.nodes[1].Name, command)
	pod.Annotations[form.notInbound] = fmt.Sprint(r.ports.directInbound)
	return pod
}

func (r *run) client(checks []check) *corev1.Pod {
	command := []string{program, "test-pod", "client"}
	for _, c := range checks {
		if c.skip == "" {
			command = append(command, "--to="+c.to.String())
		}
	}
	pod := r.pod(report.TestClient, r.nodes[0].Name, command)
	pod.Annotations[form.notOutbound] = fmt.Sprint(r.ports.directOutbound)
	return pod
}

// pod returns a pod in the mesh. Its application does not run as the proxy's user, and runs in a group
// that is captured.
func (r *run) pod(name, node string, command []string) *corev1.Pod {
	mesh := r.settings.Capture.Mesh
	pod := &corev1.Pod{ObjectMeta: testMeta(r.namespace, r.name(name), r.until)}
	pod.Labels[podLabel] = r.name(name)
	pod.Annotations[form.mark] = form.marked // so that no injector has to run
	pod.Annotations[form.mode] = string(r.mode)
	if slices.ContainsFunc(r.nodes, func(n fleet.Node) bool { return n.Mode == report.Multus }) {
		pod.Annotations["k8s.v1.cni.cncf.io/networks"] = form.network
	}
	group := int64(applicationID)
	if len(mesh.OutboundOwnerGroups) > 0 {
		group = int64(mesh.OutboundOwnerGroups[0])
	}
	seconds := int64(r.longest().Seconds())
	pod.Spec = corev1.PodSpec{
		NodeName: node, RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(false),
		TerminationGracePeriodSeconds: new(int64(1)), ActiveDeadlineSeconds: &seconds,
		Tolerations:     []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		SecurityContext: &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{
			r.container(application, command, applicationID, group),
			r.proxy(name),
		},
	}
	return pod
}

const (
	podLabel      = "capture-cni.io/test-pod"
	applicationID = 65532
)

// proxy returns the container that replaces the sidecar. With TPROXY, it runs as root with NET_ADMIN,
// as injectors configure it, and the rules recognize it by its group.
func (r *run) proxy(pod string) corev1.Container {
	mesh := r.settings.Capture.Mesh
	command := []string{
		program, "test-pod", "proxy", "--pod=" + pod,
		fmt.Sprintf("--outbound-port=%d", mesh.OutboundPort), fmt.Sprintf("--inbound-port=%d", mesh.InboundPort),
	}
	user := int64(mesh.ProxyUID)
	if r.mode == TProxy {
		command, user = append(command, "--transparent"), 0
	}
	container := r.container(form.proxy, command, user, int64(mesh.ProxyGID))
	container.Env = []corev1.EnvVar{{Name: form.dualStack[0], Value: form.dualStack[1]}}
	if r.mode == TProxy {
		container.SecurityContext.RunAsNonRoot = new(false)
		container.SecurityContext.Capabilities.Add = []corev1.Capability{"NET_ADMIN"}
	}
	return container
}

func (r *run) container(name string, command []string, user, group int64) corev1.Container {
	amount := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("64Mi")}
	return corev1.Container{
		Name: name, Image: r.image, ImagePullPolicy: corev1.PullIfNotPresent, Command: command,
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		Resources: corev1.ResourceRequirements{
			Requests: amount,
			Limits:   corev1.ResourceList{corev1.ResourceMemory: amount[corev1.ResourceMemory]},
		},
		SecurityContext: &corev1.SecurityContext{
			RunAsUser: &user, RunAsGroup: &group, RunAsNonRoot: new(true), AllowPrivilegeEscalation: new(false),
			ReadOnlyRootFilesystem: new(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
}

// service returns the server's Service, with an address of each family that the cluster has.
func (r *run) service() *corev1.Service {
	name := r.name(report.TestServer)
	return &corev1.Service{
		ObjectMeta: testMeta(r.namespace, name, r.until),
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{podLabel: name}, IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack),
			Ports: []corev1.ServicePort{{Name: "tcp", Port: servicePort, TargetPort: intstr.FromInt32(int32(r.ports.captured))}},
		},
	}
}

const servicePort = 80

// name returns the full name of an object. In an existing namespace, the name is unique, because it
// contains the id of the pair of nodes.
func (r *run) name(short string) string {
	if r.Namespace == "" {
		return short
	}
	return strings.Join([]string{"capture-cni-test", r.id, strings.ToLower(string(r.mode)), short}, "-")
}

// changed returns "" if the admitted pod has our annotation, as many containers as our pod, and no init
// containers. Otherwise a mesh's injector or a policy has changed the pod, and changed describes the
// admitted pod's containers.
func changed(ours, admitted *corev1.Pod) string {
	if admitted.Annotations[form.mark] == form.marked &&
		len(admitted.Spec.Containers) == len(ours.Spec.Containers) && len(admitted.Spec.InitContainers) == 0 {
		return ""
	}
	var names []string
	for _, c := range append(admitted.Spec.InitContainers, admitted.Spec.Containers...) {
		names = append(names, c.Name)
	}
	return "admission changed the pod: it has the containers " + cmp.Or(strings.Join(names, ", "), "none")
}

func addresses(ips []string) (byFamily map[string]netip.Addr) {
	byFamily = map[string]netip.Addr{}
	for _, ip := range ips {
		switch address, err := netip.ParseAddr(ip); {
		case err != nil:
		case address.Is4():
			byFamily["IPv4"] = address
		default:
			byFamily["IPv6"] = address
		}
	}
	return byFamily
}
