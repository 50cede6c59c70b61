// SPDX-License-Identifier: Apache-2.0

package precheck

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/report"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// TestCheck compares all that the reports say of changed clusters.
func TestCheck(t *testing.T) {
	t.Parallel()
	const file = "testdata/reports.golden"
	var got strings.Builder
	for _, test := range changes {
		c := good()
		test.change(c)
		fmt.Fprintf(&got, "# %s\n%s\n", test.name, lines(t, Check(c, "capture-cni")))
	}
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(golden), got.String()); diff != "" {
		t.Errorf("-golden +now:\n%s", diff)
	}
}

// lines returns a report but for what it says of a good cluster.
func lines(t *testing.T, r *Report) string {
	t.Helper()
	unchanged := Check(good(), "capture-cni")
	var text strings.Builder
	for _, result := range unchanged.Results {
		if !slices.Contains(r.Results, result) {
			fmt.Fprintf(&text, "no %s %s: %s\n", result.Severity, result.Subject, result.Reason)
		}
	}
	problems := 0
	for _, result := range r.Results {
		if result.Severity == report.Problem {
			problems++
		}
		if !slices.Contains(unchanged.Results, result) {
			fmt.Fprintf(&text, "%s %s: %s\n", result.Severity, result.Subject, result.Code.Mark(result.Reason))
			if result.Next != "" {
				fmt.Fprintf(&text, "  next: %s\n", result.Next)
			}
		}
		if result.Severity == report.Problem && result.Next == "" {
			t.Errorf("no next step for %q", result.Reason)
		}
	}
	if r.Good() != (problems == 0) || len(r.Results.Of(report.Problem)) != problems {
		t.Errorf("good is %t, and %d are counted, with %d problems", r.Good(), len(r.Results.Of(report.Problem)), problems)
	}
	if safe := problems == 0 && r.Guide == "" && len(r.Results.Of(report.NotKnown)) == 0; safe != (len(r.Commands) > 0) {
		t.Errorf("safe to install: %t, and the commands are %q", safe, r.Commands)
	}
	if r.Guide != "" {
		text.WriteString("guide: " + r.Guide + "\n")
	}
	for _, command := range r.Commands {
		if !slices.Contains(unchanged.Commands, command) {
			text.WriteString("$ " + command + "\n")
		}
	}
	return text.String()
}

// TestRead reads a cluster, and keeps the errors of what it may not read.
func TestRead(t *testing.T) {
	t.Parallel()
	forged, hooked := injector("default", `{"pilot":{"cni":{"enabled":true,"provider":"multus"}}}`), injector("default", "{}")
	forged.Namespace, hooked.Namespace = "tenant", "hooked"
	network := daemonSet("cilium/cilium")
	network.Namespace = "cilium"
	answers := map[string]any{
		"/version": map[string]string{"gitVersion": "v1.36.2"},
		"/api/v1/nodes?limit=500": corev1.NodeList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}, ListMeta: metav1.ListMeta{Continue: "more"}, Items: []corev1.Node{{}},
		},
		"/apis/apps/v1/daemonsets?limit=500": appsv1.DaemonSetList{
			TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSetList"}, Items: []appsv1.DaemonSet{daemonSet("istio/install-cni"), network, ours("mesh", "mesh"), ours("tenant", "x deploy/chart; curl http://a.test | sh"), daemonSet("calico/node:v3")},
		},
		"/api/v1/configmaps?labelSelector=istio.io%2Frev&limit=500": corev1.ConfigMapList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}, Items: []corev1.ConfigMap{injector("default", "{}"), *configMap("mesh", ""), forged, hooked},
		},
		"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations?limit=500": webhooks("istio-system", "/inject", "hooked", "/mutate"),
		"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/capture-cni":            binding("capture-cni", "left-behind"),
		"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/capture-cni-node":       binding("capture-cni-node", "mesh"),
		"/api/v1/namespaces/cilium/configmaps/cilium-config":                            withType(configMap("cni-exclusive", "true")),
		"/api/v1/namespaces/kube-system/configmaps/istio-cni-config":                    withType(configMap("AMBIENT_ENABLED", "true")),
		"/apis/crd.projectcalico.org/v1/felixconfigurations/default":                    map[string]any{"spec": map[string]any{"bpfEnabled": true}},
	}
	client, server := clusterOf(t, answers)
	c, err := Read(t.Context(), client, "capture-cni")
	if err != nil {
		t.Fatal(err)
	}
	if c.Version != "v1.36.2" || len(c.DaemonSets) != 5 || len(c.Injectors) != 1 || c.IstioCNI == nil || c.IstioCNI.Data["AMBIENT_ENABLED"] != "true" || c.Felix == nil || !c.Felix.Spec.BPFEnabled {
		t.Errorf("%+v", c)
	}
	want := &Installed{Namespace: "mesh", Release: "mesh", Version: "0.1.0", Values: map[string]string{"mode": "insert", "netconf.backend": "iptables-nft"}}
	if diff := cmp.Diff(want, c.Installed); diff != "" {
		t.Error(diff)
	}
	if c.Nodes != nil || c.Cilium.Data["cni-exclusive"] != "true" || c.Namespace != nil || len(c.Unknown) != 1 || !strings.Contains(c.Unknown[0].Error(), "reading nodes: nodes is forbidden") {
		t.Errorf("%+v, %v", c, c.Unknown)
	}
	delete(answers, "/apis/apps/v1/daemonsets?limit=500")
	answers["/api/v1/namespaces/kube-system/configmaps/cilium-config"] = withType(configMap("cni-exclusive", "usual"))
	if c, err := Read(t.Context(), client, "capture-cni"); err != nil || c.Cilium == nil || c.Cilium.Data["cni-exclusive"] != "usual" || c.Felix == nil {
		t.Errorf("without DaemonSets: %+v, %v", c, err)
	}
	server.Close()
	if _, err := Read(t.Context(), client, "capture-cni"); err == nil || !strings.Contains(err.Error(), "reading the API server's version") {
		t.Errorf("without an API server: %v", err)
	}
}

// clusterOf answers with objects by their URL. Only a first page of Nodes may be read.
func clusterOf(t *testing.T, answers map[string]any) (*fleet.Client, *httptest.Server) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer, known := answers[r.URL.String()]
		status := metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: 404, Reason: metav1.StatusReasonNotFound}
		if r.URL.Path == "/api/v1/nodes" {
			status.Code, status.Reason, status.Message = 403, metav1.StatusReasonForbidden, "nodes is forbidden"
		}
		if !known {
			w.WriteHeader(int(status.Code))
			answer = status
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	client, err := fleet.NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return client, server
}

// TestReadInstalled finds the installation where a ClusterRoleBinding of a release points,
// whatever other DaemonSets have its labels.
func TestReadInstalled(t *testing.T) {
	t.Parallel()
	pool := ours("mesh", "mesh")
	pool.Spec.Template.Labels = map[string]string{"capture-cni.io/pool": "gpu"}
	bound := map[string]any{"capture-cni-node": binding("capture-cni-node", "mesh")}
	longest, two := strings.Repeat("x", 53), binding("capture-cni-node", "mesh")
	other, unnamed := ours("mesh", "mesh"), ours("mesh", "mesh")
	other.Labels["app.kubernetes.io/component"] = "guard"
	unnamed.Labels["app.kubernetes.io/name"] = "other"
	without := daemonSet("ghcr.io/capture-cni/capture-cni:0.1.0")
	without.Namespace, without.Labels = "mesh", ours("mesh", "mesh").Labels
	two.Subjects = append(two.Subjects, two.Subjects...)
	pool.Spec.Template.Spec.Containers[0].Image = "mirror.test/capture-cni@sha256:00"
	for _, tt := range []struct {
		name     string
		bindings map[string]any
		sets     []appsv1.DaemonSet
		want     string
	}{
		{"no ClusterRoleBinding", nil, []appsv1.DaemonSet{ours("mesh", "mesh")}, "none"},
		{"0.1.0", map[string]any{"capture-cni": binding("capture-cni", "mesh")}, []appsv1.DaemonSet{ours("mesh", "mesh"), ours("tenant", "x")}, "mesh mesh []"},
		{"without a token", map[string]any{"capture-cni-node": binding("capture-cni-node", "mesh")}, []appsv1.DaemonSet{ours("tenant", "x"), ours("mesh", "mesh")}, "mesh mesh []"},
		{"uninstalled", map[string]any{"capture-cni": binding("capture-cni", "mesh")}, []appsv1.DaemonSet{ours("tenant", "x")}, "none"},
		{"another account's", map[string]any{"capture-cni-node": binding("default", "tenant")}, []appsv1.DaemonSet{ours("tenant", "x")}, "none"},
		{"no name of Helm's form", map[string]any{"capture-cni-node": binding("capture-cni-node", "mesh")}, []appsv1.DaemonSet{ours("mesh", "--post-renderer=/x")}, "mesh  []"},
		{"the longest name", bound, []appsv1.DaemonSet{ours("mesh", longest)}, "mesh " + longest + " []"},
		{"a name that is too long", bound, []appsv1.DaemonSet{ours("mesh", longest+"x")}, "mesh  []"},
		{"DaemonSets that are no agents", bound, []appsv1.DaemonSet{other, unnamed, without}, "none"},
		{"of two accounts", map[string]any{"capture-cni-node": two}, []appsv1.DaemonSet{ours("mesh", "mesh")}, "none"},
		{"a pool with an image of its own", map[string]any{"capture-cni-node": binding("capture-cni-node", "mesh")}, []appsv1.DaemonSet{pool, ours("mesh", "a.b-c")}, "mesh a.b-c [mirror.test/capture-cni@sha256:00]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			answers := map[string]any{}
			for name, object := range tt.bindings {
				answers["/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/"+name] = object
			}
			client, _ := clusterOf(t, answers)
			c, got := &Cluster{DaemonSets: tt.sets}, "none"
			if c.readInstalled(t.Context(), client); c.Installed != nil {
				got = fmt.Sprint(c.Installed.Namespace, " ", c.Installed.Release, " ", c.Installed.Pinned)
			}
			if got != tt.want || len(c.Unknown) > 0 {
				t.Errorf("found %q, want %q (%v)", got, tt.want, c.Unknown)
			}
		})
	}
}

// TestNamespaceOfOthers proposes privileged for a namespace that exists only if it is the
// default one: other pods could be there.
func TestNamespaceOfOthers(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"", "baseline"} {
		c := good()
		c.Namespace = namespace(level)
		c.Namespace.Name = "tenant"
		report := Check(c, "tenant")
		for _, command := range report.Commands {
			if strings.Contains(command, "label") {
				t.Errorf("%q: it prints %s", level, command)
			}
		}
		for _, result := range report.Results {
			if result.Subject == "namespace" && !strings.HasSuffix(result.Next, "or, if only capture-cni has pods there, set its label "+podSecurity+" to privileged") {
				t.Errorf("%q: the next step is %s", level, result.Next)
			}
			if strings.Contains(result.Next, "kubectl label") {
				t.Errorf("%q: the next step is %s", level, result.Next)
			}
		}
	}
}

// TestMirroredImages knows what Rancher's mirror of Docker Hub renames.
func TestMirroredImages(t *testing.T) {
	t.Parallel()
	for image, want := range map[string]string{"rancher/mirrored-cilium-cilium:v1": cilium, "rancher/mirrored-calico-node:v3": calico, "rancher/other": ""} {
		if got := programOf(daemonSet(image)); got != want {
			t.Errorf("%s is %q, want %q", image, got, want)
		}
	}
}

// TestPrintedCommandsAreWords expects each word of a command to be one word for a shell.
func TestPrintedCommandsAreWords(t *testing.T) {
	t.Parallel()
	const name = "a b; curl http://a.test | sh"
	c := good()
	c.Namespace = nil
	commands := Check(c, name).Commands
	for _, command := range commands {
		if !strings.Contains(command, " '"+name+"'") || strings.Count(command, name) != 1 {
			t.Errorf("%s has an unquoted word", command)
		}
	}
	if len(commands) != 3 {
		t.Errorf("%q", commands)
	}
}

// webhooks returns configurations of webhooks by namespace and path.
func webhooks(services ...string) (list admissionv1.MutatingWebhookConfigurationList) {
	list.TypeMeta = metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingWebhookConfigurationList"}
	for pair := range slices.Chunk(services, 2) {
		client := admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: pair[0], Name: "any", Path: &pair[1]}}
		url := admissionv1.WebhookClientConfig{URL: new("https://a.test/inject")}
		list.Items = append(list.Items, admissionv1.MutatingWebhookConfiguration{Webhooks: []admissionv1.MutatingWebhook{{ClientConfig: url}, {ClientConfig: client}}})
	}
	return list
}

// binding returns a ClusterRoleBinding to an account.
func binding(account, namespace string) rbacv1.ClusterRoleBinding {
	return rbacv1.ClusterRoleBinding{
		TypeMeta: metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRoleBinding"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account, Namespace: namespace}},
	}
}

// ours is the chart's DaemonSet.
func ours(namespace, release string) appsv1.DaemonSet {
	set := daemonSet("ghcr.io/capture-cni/capture-cni:0.1.0")
	set.Namespace, set.Name, set.Annotations = namespace, "capture-cni-node", map[string]string{"meta.helm.sh/release-name": release}
	set.Labels = map[string]string{"app.kubernetes.io/name": "capture-cni", "app.kubernetes.io/component": "node", "app.kubernetes.io/version": "0.1.0"}
	set.Spec.Template.Spec.Containers = set.Spec.Template.Spec.Containers[1:]
	set.Spec.Template.Spec.Containers[0].Name = fleet.InstallerContainer
	set.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "CAPTURE_CNI_MODE", Value: "insert"}, {Name: fleet.NetConfVariable, Value: `{"backend": "iptables-nft"}`}}
	return set
}

func withType(c *corev1.ConfigMap) *corev1.ConfigMap {
	c.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	return c
}
