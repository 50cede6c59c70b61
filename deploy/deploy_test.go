// SPDX-License-Identifier: Apache-2.0

// Package deploy tests the chart, the files that are rendered from it, and the
// guides.
package deploy

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite the files that are rendered from the chart")

const (
	chart     = "chart"
	namespace = "capture-cni"
)

var platforms = []string{"plain", "gke", "k0s", "k3d", "k3s", "rke2", "microk8s", "minikube", "openshift"}

// render returns the manifests for values in the form of Helm's --set, or of
// --set-json for an object.
func render(t *testing.T, values ...string) (string, error) {
	t.Helper()
	return helm(t, template(values...)...)
}

// template returns Helm's arguments.
func template(values ...string) []string {
	args := []string{"template", "capture-cni", chart, "--namespace", namespace, "--kube-version", "1.34.0"}
	for _, value := range values {
		if strings.Contains(value, `={"`) {
			args = append(args, "--set-json", value)
		} else {
			args = append(args, "--set", value)
		}
	}
	return args
}

// object is one rendered object.
type object struct {
	kind, name string
	text       []byte
}

// objects renders values and parses the objects strictly.
func objects(t *testing.T, values ...string) []object {
	t.Helper()
	out, err := render(t, values...)
	if err != nil {
		t.Fatalf("%q: %v\n%s", values, err, out)
	}
	var all []object
	for _, document := range strings.Split(out, "\n---\n") {
		var head struct {
			Kind     string
			Metadata struct{ Name string }
		}
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			t.Fatalf("%q: %v\n%s", values, err, document)
		}
		o := object{head.Kind, head.Metadata.Name, []byte(strings.TrimPrefix(document, "---\n"))}
		o.expectStrict(t)
		all = append(all, o)
	}
	return all
}

// expectStrict wants no field that the API server does not know. Kinds that are
// not Kubernetes' own are only parsed.
func (o object) expectStrict(t *testing.T) {
	t.Helper()
	types := map[string]any{
		"DaemonSet": &appsv1.DaemonSet{}, "ConfigMap": &corev1.ConfigMap{}, "Namespace": &corev1.Namespace{},
		"ServiceAccount": &corev1.ServiceAccount{}, "ResourceQuota": &corev1.ResourceQuota{},
		"Role": &rbacv1.Role{}, "RoleBinding": &rbacv1.RoleBinding{},
		"ClusterRole": &rbacv1.ClusterRole{}, "ClusterRoleBinding": &rbacv1.ClusterRoleBinding{},
		"ValidatingAdmissionPolicy": &admissionv1.ValidatingAdmissionPolicy{}, "ValidatingAdmissionPolicyBinding": &admissionv1.ValidatingAdmissionPolicyBinding{},
		"SecurityContextConstraints": &map[string]any{}, "NetworkAttachmentDefinition": &map[string]any{}, "PodMonitor": &map[string]any{}, "PrometheusRule": &map[string]any{},
	}
	into, known := types[o.kind]
	if !known {
		t.Fatalf("kind %q is not expected", o.kind)
	}
	if err := yaml.UnmarshalStrict(o.text, into); err != nil {
		t.Errorf("%s %s: %v", o.kind, o.name, err)
	}
}

// find returns the object of a kind and name; ok reports whether there is one.
func find[T any](t *testing.T, all []object, kind, name string) (found T, ok bool) {
	t.Helper()
	i := slices.IndexFunc(all, func(o object) bool { return o.kind == kind && o.name == name })
	if i < 0 {
		return found, false
	}
	if err := yaml.Unmarshal(all[i].text, &found); err != nil {
		t.Fatal(err)
	}
	return found, true
}

// daemonSet renders the DaemonSet.
func daemonSet(t *testing.T, values ...string) appsv1.DaemonSet {
	t.Helper()
	set, ok := find[appsv1.DaemonSet](t, objects(t, values...), "DaemonSet", "capture-cni-node")
	if !ok || len(set.Spec.Template.Spec.Containers) == 0 {
		t.Fatalf("%q: there is no DaemonSet", values)
	}
	return set
}

func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// expectFresh wants a file to have the content, or writes it with -update.
func expectFresh(t *testing.T, name, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got := read(t, name); got != want {
		t.Errorf("%s is stale: run go test ./deploy -update", name)
	}
}

func TestLint(t *testing.T) {
	for _, platform := range platforms {
		if out, err := helm(t, "lint", "--strict", "--set", "platform="+platform, chart); err != nil {
			t.Errorf("%s: %v\n%s", platform, err, out)
		}
	}
}

// TestManifest keeps the manifest for kubectl apply up to date.
func TestManifest(t *testing.T) {
	out, err := render(t)
	if err != nil {
		t.Fatal(out)
	}
	manifest := `# SPDX-License-Identifier: Apache-2.0

# The chart with its default values, for kubectl apply. Made by go test ./deploy -update.
apiVersion: v1
kind: Namespace
metadata:
  name: ` + namespace + `
  labels:
    # The agent needs the host's network and directories.
    pod-security.kubernetes.io/enforce: privileged
`
	out = strings.ReplaceAll(out, "\n\n---\n", "\n---\n") // as Helm 4 ends documents
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, "# Source: ") {
			manifest += line
		}
	}
	expectFresh(t, "capture-cni.yaml", manifest)
}

// refusals are wrong values, and how Helm names them.
var refusals = []struct{ value, errContains string }{
	{"platfrom=gke", "platfrom"},
	{"platform=eks", "/platform"},
	{"mode=chained", "/mode"},
	{"state=gone", "/state"},
	{"paths.netdir=/x", "netdir"},
	{"paths.netDir=etc", "/paths/netDir"},
	{"image.digest=sha256:12", "/image/digest"},
	{"besideIstioCNI=yes", "/besideIstioCNI"},
	{"token.ttl=1d", "/token/ttl"},
	{"token.onNode=no", "/token/onNode"},
	{"token.onNode=false,netconf.agentSocket=", "token.onNode is false and netconf.agentSocket is empty"},
	{"netconf.agentSocket=/run/other/agent.sock", "expected agent.sock in paths.runDir or paths.stateDir"},
	{"netconf.agentSocket=/run/capture-cni/s", "expected agent.sock"},
	{"guard.refresh=5m", "refresh"},
	{"netconf.backendd=iptables", "backendd"},
	{"netconf.kubeconfig=/x", "kubeconfig"},
	{"netconf.mesh.inboundport=1", "inboundport"},
	{"netconf.ipv6=no", "/netconf/ipv6"},
	{"netconf.mesh.proxyUID=0", "/netconf/mesh/proxyUID"},
	{"addCapabilities={SYS_ADMIN}", "/addCapabilities/0"},
	{"metrics.listen=15015", "/metrics/listen"},
	{"taint.key=node.kubernetes.io/unschedulable", "/taint/key"},
	{"metrics.podMonitor.enabled=true", "loopback"},
	{"metrics.podMonitor.enabled=true,metrics.listen=$(HOST_IP):15015,guard.listen=::1:15016", "loopback"},
}

// TestRefusals wants Helm to refuse wrong values and to name them.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, test := range refusals {
		out, err := render(t, test.value)
		if err == nil || !strings.Contains(out, test.errContains) {
			t.Errorf("%s: got %v, %s; want an error with %q", test.value, err, out, test.errContains)
		}
	}
}

func TestImage(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0", 64)
	for _, test := range []struct{ values, want string }{
		{"", "ghcr.io/capture-cni/capture-cni:" + appVersion(t)},
		{"image.tag=v9", "ghcr.io/capture-cni/capture-cni:v9"},
		{"image.registry=mirror.example:5000,image.repository=a/b", "mirror.example:5000/a/b:" + appVersion(t)},
		{"image.tag=v9,image.digest=" + digest, "ghcr.io/capture-cni/capture-cni@" + digest},
	} {
		if got := daemonSet(t, test.values).Spec.Template.Spec.Containers[0].Image; got != test.want {
			t.Errorf("%s: image %s, want %s", test.values, got, test.want)
		}
	}
}

// TestImageOfAnotherRelease refuses tags of another minor version: an agent does not know all
// flags and commands of another release's chart. Tags that are no version of ours are the
// operator's.
func TestImageOfAnotherRelease(t *testing.T) {
	version := strings.Split(appVersion(t), ".")
	minor, err := strconv.Atoi(version[1])
	if err != nil {
		t.Fatal(err)
	}
	other := fmt.Sprintf("%s.%d", version[0], minor+1)
	same := version[0] + "." + version[1]
	digest := "sha256:" + strings.Repeat("0", 64)
	pool := "pools[0].name=x,pools[0].nodeSelector.x=y,"
	for values, refused := range map[string]string{
		"image.tag=0.1.0": "image.tag is 0.1.0", "image.tag=v0.2.0": "image.tag is v0.2.0", "image.tag=" + other + ".0": "image.tag is " + other, "image.tag=0.2.0-rc.1": "0.2.0-rc.1",
		"image.tag=v0.2.0-fips": "v0.2.0-fips", "image.tag=1" + same + ".0": "image.tag is 1" + same,
		pool + "pools[0].image.tag=v0.2.0":                                      "pool x: image.tag is v0.2.0",
		pool + "pools[0].image.tag=0.1.0,image.digest=" + digest:                "pool x: image.tag is 0.1.0",
		"image.repository=a/b,image.tag=v0.2.0,admission.identity.enabled=true": "image.tag is v0.2.0",
		"image.tag=" + same + ".99":                                             "", "image.tag=v" + same + ".0-rc.1": "", "image.tag=" + same + ".0_build.1": "",
		"image.tag=latest": "", "image.tag=main": "", "image.tag=v9": "", "image.tag=2026.11.26": "", "image.tag=build-0.1.0": "", "image.tag=sha-0a1b2c3": "",
		"image.tag=v0.2.0,image.digest=" + digest: "", pool + "pools[0].image.tag=v0.2.0,pools[0].image.digest=" + digest: "",
		pool + "image.tag=v0.2.0,pools[0].image.digest=" + digest: "image.tag is v0.2.0", pool + "image.tag=v0.2.0,image.digest=" + digest: "",
		"image.digest=" + digest: "", pool + "pools[0].image.digest=" + digest: "", "image.tag=": "", "image.tag=0.1": "",
	} {
		out, err := render(t, values)
		if (err != nil) != (refused != "") || !strings.Contains(out, refused) {
			t.Errorf("%s: %v\n%.400s\nwant %q", values, err, out, refused)
		}
		if err != nil && (!strings.Contains(out, "--set image.tag=") || !strings.Contains(out, "of "+appVersion(t))) {
			t.Errorf("%s: the message names no cure: %s", values, out)
		}
	}
}

// TestArtifactHub reads what the chart says to Artifact Hub, which ignores what it can't:
// https://artifacthub.io/docs/topics/annotations/helm/.
func TestArtifactHub(t *testing.T) {
	var metadata struct{ Annotations map[string]string }
	if err := yaml.Unmarshal([]byte(read(t, chart+"/Chart.yaml")), &metadata); err != nil {
		t.Fatal(err)
	}
	var images []struct{ Name, Image string }
	var links []struct{ Name, URL string }
	if err := errors.Join(
		yaml.Unmarshal([]byte(metadata.Annotations["artifacthub.io/images"]), &images),
		yaml.Unmarshal([]byte(metadata.Annotations["artifacthub.io/links"]), &links)); err != nil {
		t.Fatal(err)
	}
	rendered, err := render(t)
	if err != nil || len(images) != 1 || !strings.Contains(rendered, "image: "+images[0].Image+"\n") {
		t.Errorf("the images for Artifact Hub are %v: expected the chart's default (%v)", images, err)
	}
	for _, link := range links {
		if path, ok := strings.CutPrefix(link.URL, "https://github.com/capture-cni/capture-cni/blob/main/"); ok {
			read(t, "../"+path)
		}
	}
	expectSome(t, len(links))
}

func appVersion(t *testing.T) string {
	t.Helper()
	var metadata struct{ AppVersion string }
	if err := yaml.Unmarshal([]byte(read(t, chart+"/Chart.yaml")), &metadata); err != nil || metadata.AppVersion == "" {
		t.Fatalf("Chart.yaml has no appVersion (%v)", err)
	}
	return metadata.AppVersion
}
