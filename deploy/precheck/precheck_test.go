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
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/deploy/fleet"
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
			fmt.Fprintf(&text, "no %s %s: %s\n", result.Level, result.Subject, result.Text)
		}
	}
	problems := 0
	for _, result := range r.Results {
		if result.Level == Problem {
			problems++
		}
		if !slices.Contains(unchanged.Results, result) {
			fmt.Fprintf(&text, "%s %s: %s\n", result.Level, result.Subject, result.Text)
			if result.Next != "" {
				fmt.Fprintf(&text, "  next: %s\n", result.Next)
			}
		}
		if result.Level == Problem && result.Next == "" {
			t.Errorf("no next step for %q", result.Text)
		}
	}
	if r.Good() != (problems == 0) {
		t.Errorf("good is %t with %d problems", r.Good(), problems)
	}
	if safe := problems == 0 && r.Guide == "" && r.Count(Unknown) == 0; safe != (len(r.Commands) > 0) {
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
	answers := map[string]any{
		"/version": map[string]string{"gitVersion": "v1.36.2"},
		"/api/v1/nodes?limit=500": corev1.NodeList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}, ListMeta: metav1.ListMeta{Continue: "more"}, Items: []corev1.Node{{}},
		},
		"/apis/apps/v1/daemonsets?limit=500": appsv1.DaemonSetList{
			TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSetList"}, Items: []appsv1.DaemonSet{daemonSet("istio/install-cni"), ours(), daemonSet("calico/node:v3")},
		},
		"/api/v1/configmaps?labelSelector=istio.io%2Frev&limit=500": corev1.ConfigMapList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}, Items: []corev1.ConfigMap{injector("default", "{}"), *configMap("mesh", "")},
		},
		"/api/v1/namespaces/kube-system/configmaps/cilium-config":    withType(configMap("left", "behind")),
		"/api/v1/namespaces/kube-system/configmaps/istio-cni-config": withType(configMap("AMBIENT_ENABLED", "true")),
		"/apis/crd.projectcalico.org/v1/felixconfigurations/default": map[string]any{"spec": map[string]any{"bpfEnabled": true}},
	}
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
	c, err := Read(t.Context(), client, "capture-cni")
	if err != nil {
		t.Fatal(err)
	}
	if c.Version != "v1.36.2" || len(c.DaemonSets) != 3 || len(c.Injectors) != 1 || c.IstioCNI == nil || c.IstioCNI.Data["AMBIENT_ENABLED"] != "true" || c.Felix == nil || !c.Felix.Spec.BPFEnabled {
		t.Errorf("%+v", c)
	}
	want := &Installed{Namespace: "mesh", Release: "mesh", Version: "0.1.0", Values: map[string]string{"mode": "insert", "netconf.backend": "iptables-nft"}}
	if diff := cmp.Diff(want, c.Installed); diff != "" {
		t.Error(diff)
	}
	if c.Nodes != nil || c.Cilium != nil || c.Namespace != nil || len(c.Unknown) != 1 || !strings.Contains(c.Unknown[0].Error(), "reading nodes: nodes is forbidden") {
		t.Errorf("%+v, %v", c, c.Unknown)
	}
	server.Close()
	if _, err := Read(t.Context(), client, "capture-cni"); err == nil || !strings.Contains(err.Error(), "reading the API server's version") {
		t.Errorf("without an API server: %v", err)
	}
}

// ours is the chart's DaemonSet.
func ours() appsv1.DaemonSet {
	set := daemonSet("ghcr.io/capture-cni/capture-cni:0.1.0")
	set.Namespace, set.Name, set.Annotations = "mesh", "capture-cni-node", map[string]string{"meta.helm.sh/release-name": "mesh"}
	set.Labels = map[string]string{"app.kubernetes.io/name": "capture-cni", "app.kubernetes.io/component": "node", "app.kubernetes.io/version": "0.1.0"}
	set.Spec.Template.Spec.Containers[0].Name = fleet.InstallerContainer
	set.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "CAPTURE_CNI_MODE", Value: "insert"}, {Name: fleet.NetConfVariable, Value: `{"backend": "iptables-nft"}`}}
	return set
}

func withType(c *corev1.ConfigMap) *corev1.ConfigMap {
	c.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	return c
}
