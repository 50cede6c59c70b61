// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// sidecar is a way to run a sidecar that a pod asks istiod for.
type sidecar struct {
	native      bool
	transparent bool
	config      string // of the proxy
}

const dualStack = `ISTIO_DUAL_STACK: "true"`

var sidecars = map[string]sidecar{
	"native":              {native: true, config: `{proxyMetadata: {` + dualStack + `, ISTIO_META_DNS_CAPTURE: "true"}}`},
	"classic":             {config: `{proxyMetadata: {` + dualStack + `, ISTIO_META_DNS_CAPTURE: "true"}}`},
	"holding":             {config: `{holdApplicationUntilProxyStarts: true, proxyMetadata: {` + dualStack + `}}`},
	"native-transparent":  {native: true, transparent: true, config: `{proxyMetadata: {` + dualStack + `}}`},
	"classic-transparent": {transparent: true, config: `{proxyMetadata: {` + dualStack + `}}`},
}

// namespace returns a namespace that is as strict as the sidecar allows: a transparent
// one is root with NET_ADMIN.
func (s sidecar) namespace(t *testing.T) suite.Namespace {
	t.Helper()
	if s.transparent {
		return c.NewNamespace(t, cluster.Injected)
	}
	return c.NewNamespace(t, suite.Restricted, cluster.Injected)
}

// server returns a pod that serves TCP next to the sidecar.
func (s sidecar) server(name, node string) *corev1.Pod {
	pod := suite.Server(name, node)
	pod.Annotations["sidecar.istio.io/nativeSidecar"] = fmt.Sprint(s.native)
	pod.Annotations["proxy.istio.io/config"] = s.config
	if s.transparent {
		pod.Annotations["sidecar.istio.io/interceptionMode"] = "TPROXY"
		pod.Spec.SecurityContext.RunAsNonRoot = nil
	}
	return pod
}

// TestSidecars has istiod inject pods in each way: Istio's own validation finds the
// rules, pilot-agent and istiod reach each other, and connections within a node, across
// nodes and through services go through both sidecars, in both families.
func TestSidecars(t *testing.T) {
	c.InstallChart(t)
	for name, s := range sidecars {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := s.namespace(t)
			var pods []*corev1.Pod
			for _, node := range c.Nodes {
				pods = append(pods, s.server("web-"+node.Name, node.Name))
				n.Expose(t, pods[len(pods)-1].Name)
			}
			n.Run(t, pods...)
			for _, pod := range pods {
				expectInjected(t, n.Get(t, pod.Name), s)
				n.ExpectCaptured(t, pod.Name)
			}
			for _, from := range pods {
				for _, to := range pods {
					if from != to || !s.transparent {
						n.ExpectBothProxies(t, from.Name, to.Name)
					}
				}
			}
			if strings.Contains(s.config, "DNS_CAPTURE") {
				expectNames(t, n, pods)
			}
		})
	}
}

// expectInjected expects the containers of istiod's injection, and a validation that
// has succeeded.
func expectInjected(t *testing.T, pod *corev1.Pod, s sidecar) {
	t.Helper()
	initContainers, containers := names(pod.Spec.InitContainers), names(pod.Spec.Containers)
	wantInit, want := []string{"istio-validation"}, []string{"app"}
	switch {
	case s.native:
		wantInit = append(wantInit, "istio-proxy")
	case strings.Contains(s.config, "holdApplication"):
		want = []string{"istio-proxy", "app"}
	default:
		want = []string{"app", "istio-proxy"}
	}
	if !slices.Equal(initContainers, wantInit) || !slices.Equal(containers, want) {
		t.Errorf("istiod made the init containers %q and the containers %q, want %q and %q", initContainers, containers, wantInit, want)
	}
	if code, ended := validated(pod); !ended || code != 0 {
		t.Errorf("istio-validation has ended: %v, with %d", ended, code)
	}
}

// validated returns how Istio's validation of a pod has ended the last time.
func validated(pod *corev1.Pod) (code int32, ended bool) {
	for _, status := range pod.Status.InitContainerStatuses {
		if status.Name != "istio-validation" {
			continue
		}
		for _, state := range []corev1.ContainerState{status.State, status.LastTerminationState} {
			if state.Terminated != nil {
				return state.Terminated.ExitCode, true
			}
		}
	}
	return 0, false
}

func names(containers []corev1.Container) (all []string) {
	for _, container := range containers {
		all = append(all, container.Name)
	}
	return all
}

// expectNames has an application look up a service. The cluster has no name server:
// pilot-agent answers, with what istiod tells it. Names in other domains, which the
// search list would try first, are answered by nothing: hence the dot at the end.
func expectNames(t *testing.T, n suite.Namespace, pods []*corev1.Pod) {
	t.Helper()
	from, to := pods[0].Name, pods[1].Name
	ip := n.Kubectl(t, "", "get", "service", to, "-o", "jsonpath={.spec.clusterIP}")
	lab.Eventually(t, func() error { // istiod may see the service later than kubectl
		out, err := c.Kubectl(t.Context(), "", "--namespace", n.Name, "exec", from, "--container", "app", "--", "/apps", "lookup", to+"."+n.Name+".svc.cluster.local.")
		if err == nil && !slices.Contains(strings.Fields(out), ip) {
			err = fmt.Errorf("%s is %q, want %s", to, out, ip)
		}
		return err
	})
}
