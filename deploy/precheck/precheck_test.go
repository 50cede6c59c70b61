// SPDX-License-Identifier: Apache-2.0

package precheck

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// good is a cluster on which nothing stands in the way.
func good() *Cluster {
	return &Cluster{
		Version: "v1.36.2", Nodes: []corev1.Node{node("n1", "v1.36.2", "containerd://2.1.4", "6.12.0")}, DaemonSets: []appsv1.DaemonSet{},
		Injectors: []corev1.ConfigMap{injector("default", `{"pilot":{"cni":{"enabled":true,"provider":"default"}}}`)},
		Namespace: namespace("privileged"),
	}
}

func node(name, kubelet, runtime, kernel string) corev1.Node {
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}},
		Status:     corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "linux", KubeletVersion: kubelet, ContainerRuntimeVersion: runtime, KernelVersion: kernel}},
	}
}

func injector(revision, values string) corev1.ConfigMap {
	return corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "istio-system", Name: "istio-sidecar-injector", Labels: map[string]string{"istio.io/rev": revision}},
		Data:       map[string]string{"values": values, "config": ""},
	}
}

func namespace(level string) *corev1.Namespace {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "capture-cni", Labels: map[string]string{}}}
	if level != "" {
		n.Labels[podSecurity] = level
	}
	return n
}

func daemonSet(name string) appsv1.DaemonSet {
	return appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}}
}

func configMap(data ...string) *corev1.ConfigMap {
	c := &corev1.ConfigMap{Data: map[string]string{}}
	for i := 0; i < len(data); i += 2 {
		c.Data[data[i]] = data[i+1]
	}
	return c
}

// TestCheck changes one thing of a good cluster at a time.
func TestCheck(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*Cluster)
		level  Level
		says   string // "subject: text"
		helm   string
	}{
		"nothing":           {func(*Cluster) {}, OK, "nodes: 1, with containerd://2.1.4", "--set platform=plain"},
		"an old Kubernetes": {func(c *Cluster) { c.Version = "v1.24.17" }, Problem, "kubernetes: version v1.24.17", ""},
		"no policies":       {func(c *Cluster) { c.Version = "v1.29.3+k3s1" }, Note, "kubernetes: version v1.29.3", ""},
		"k3s":               {func(c *Cluster) { c.Nodes[0].Status.NodeInfo.KubeletVersion = "v1.33.1+k3s1" }, OK, "platform: k3s", "--set platform=k3s"},
		"GKE":               {func(c *Cluster) { c.Nodes[0].Status.NodeInfo.KubeletVersion = "v1.33.1-gke.1386000" }, OK, "platform: gke", "--set platform=gke"},
		"MicroK8s":          {func(c *Cluster) { c.Nodes[0].Labels["microk8s.io/cluster"] = "true" }, OK, "platform: microk8s", "--set platform=microk8s"},
		"OpenShift":         {func(c *Cluster) { c.Nodes[0].Labels["node.openshift.io/os_id"] = "rhel" }, Note, "mode: provider default on OpenShift", "--set mode=multus-chain --set platform=openshift"},
		"two platforms":     {func(c *Cluster) { c.Nodes = append(c.Nodes, node("n2", "v1.36.2+k3s1", "containerd://2.1.4", "6.1.0")) }, Problem, "platform: nodes of several platforms: k3s, plain", ""},
		"a node of Windows": {func(c *Cluster) {
			c.Nodes = append(c.Nodes, corev1.Node{Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "windows", KernelVersion: "10.0"}}})
		}, OK, "platform: plain", ""},
		"an old kernel":     {func(c *Cluster) { c.Nodes[0].Status.NodeInfo.KernelVersion = "4.18.0-553.el8" }, Note, "kernel: older than 5.2 on n1", "--set netconf.backend=iptables"},
		"another runtime":   {func(c *Cluster) { c.Nodes[0].Status.NodeInfo.ContainerRuntimeVersion = "docker://27.0.1" }, Problem, "runtime: neither containerd nor CRI-O on n1", ""},
		"an old CRI-O":      {func(c *Cluster) { c.Nodes[0].Status.NodeInfo.ContainerRuntimeVersion = "cri-o://1.28.2" }, Note, "runtime: does not pass annotations on n1", ""},
		"istio-init":        {func(c *Cluster) { c.Injectors[0].Data["values"] = `{"pilot":{"cni":{"enabled":false}}}` }, Note, "istiod default: it injects istio-init", ""},
		"an older Istio":    {func(c *Cluster) { c.Injectors[0].Data["values"] = `{"istio_cni":{"enabled":true,"chained":false}}` }, OK, "istiod default: it injects without istio-init, for provider multus", "--set mode=multus"},
		"without istio":     {func(c *Cluster) { c.Injectors = nil }, Note, "istiod: no configuration of an injector", ""},
		"a broken injector": {func(c *Cluster) { c.Injectors[0].Data["values"] = "{" }, Note, "istiod default: the values of istio-system/istio-sidecar-injector can't be read", ""},
		"two providers": {func(c *Cluster) {
			c.Injectors = append(c.Injectors, injector("canary", `{"pilot":{"cni":{"enabled":true,"provider":"multus"}}}`))
		}, Problem, "istiod: its revisions inject for provider default and for multus", ""},
		"istio-cni": {func(c *Cluster) { c.DaemonSets = append(c.DaemonSets, daemonSet("istio-cni-node")) }, Note, "istio-cni: it is in namespace kube-system", "--set besideIstioCNI=true"},
		"istio-cni, ambient": {func(c *Cluster) {
			c.DaemonSets, c.IstioCNI = append(c.DaemonSets, daemonSet("istio-cni-node")), configMap("AMBIENT_ENABLED", "true")
		}, Problem, "istio-cni: it is in namespace kube-system with ambient mode", ""},
		"ztunnel": {func(c *Cluster) { c.DaemonSets = append(c.DaemonSets, daemonSet("ztunnel")) }, Problem, "ambient mode: ztunnel runs", ""},
		"Linkerd": {func(c *Cluster) { c.DaemonSets = append(c.DaemonSets, daemonSet("linkerd-cni")) }, Note, "linkerd-cni: it is in namespace kube-system", ""},
		"Cilium, exclusive": {func(c *Cluster) {
			c.Cilium = configMap("cni-exclusive", "true")
			c.Nodes[0].Status.NodeInfo.ContainerRuntimeVersion = "containerd://2.0.7"
		}, Problem, "cilium: with cni.exclusive", ""},
		"Cilium and drop-ins": {func(c *Cluster) { c.Cilium = configMap("cni-exclusive", "true") }, OK, "cilium: its settings", ""},
		"Cilium at sockets":   {func(c *Cluster) { c.Cilium = configMap("kube-proxy-replacement", "true") }, Note, "cilium: it balances connections", ""},
		"Cilium on the node":  {func(c *Cluster) { c.Cilium = configMap("bpf-lb-sock", "true", "bpf-lb-sock-hostns-only", "true") }, OK, "cilium: its settings", ""},
		"Calico's eBPF":       {func(c *Cluster) { c.Felix = &Felix{}; c.Felix.Spec.BPFEnabled = true }, Note, "calico: its eBPF data plane", ""},
		"Calico":              {func(c *Cluster) { c.Felix = &Felix{} }, OK, "calico: its settings", ""},
		"no namespace":        {func(c *Cluster) { c.Namespace = nil }, OK, "namespace: capture-cni does not exist yet", ""},
		"no label":            {func(c *Cluster) { c.Namespace = namespace("") }, Note, "namespace: capture-cni has no label", ""},
		"restricted":          {func(c *Cluster) { c.Namespace = namespace("restricted") }, Problem, `namespace: capture-cni enforces "restricted"`, ""},
		"no permission":       {func(c *Cluster) { c.Unknown = []error{fmt.Errorf("reading nodes: forbidden")} }, Note, "permissions: reading nodes: forbidden", ""},
	} {
		c := good()
		test.change(c)
		report := Check(c, "capture-cni")
		var said strings.Builder
		for _, result := range report.Results {
			fmt.Fprintf(&said, "%s %s: %s\n", result.Level, result.Subject, result.Text)
			if result.Level == Problem && result.Next == "" {
				t.Errorf("%s: no next step for %q", name, result.Text)
			}
		}
		if !strings.Contains(said.String(), string(test.level)+" "+test.says) {
			t.Errorf("%s: %q is missing in:\n%s", name, test.says, said.String())
		}
		if report.Good() != (test.level != Problem) {
			t.Errorf("%s: good is %v:\n%s", name, report.Good(), said.String())
		}
		commands := strings.Join(report.Commands, "\n")
		if !strings.Contains(commands, "helm -n capture-cni install capture-cni deploy/chart") || !strings.Contains(commands, test.helm) {
			t.Errorf("%s: %q is missing in:\n%s", name, test.helm, commands)
		}
		if labels := strings.Contains(commands, "kubectl label namespace capture-cni"); labels != strings.Contains("no namespace, no label, restricted", name) {
			t.Errorf("%s: a command labels the namespace: %v", name, labels)
		}
	}
}

// TestRead reads a cluster, and keeps the errors of what it may not read.
func TestRead(t *testing.T) {
	t.Parallel()
	answers := map[string]any{
		"/version": map[string]string{"gitVersion": "v1.36.2"},
		"/apis/apps/v1/daemonsets": appsv1.DaemonSetList{
			TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSetList"}, Items: []appsv1.DaemonSet{daemonSet("istio-cni-node")},
		},
		"/api/v1/configmaps": corev1.ConfigMapList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}, Items: []corev1.ConfigMap{injector("default", "{}"), *configMap("mesh", "")},
		},
		"/api/v1/namespaces/kube-system/configmaps/istio-cni-config": withType(configMap("AMBIENT_ENABLED", "true")),
		"/apis/crd.projectcalico.org/v1/felixconfigurations/default": map[string]any{"spec": map[string]any{"bpfEnabled": true}},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer, known := answers[r.URL.Path]
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
	c, err := Read(t.Context(), &rest.Config{Host: server.URL}, "capture-cni")
	if err != nil {
		t.Fatal(err)
	}
	if c.Version != "v1.36.2" || len(c.DaemonSets) != 1 || len(c.Injectors) != 1 || c.IstioCNI == nil || c.IstioCNI.Data["AMBIENT_ENABLED"] != "true" || c.Felix == nil || !c.Felix.Spec.BPFEnabled {
		t.Errorf("%+v", c)
	}
	if c.Cilium != nil || c.Namespace != nil || len(c.Unknown) != 1 || !strings.Contains(c.Unknown[0].Error(), "reading nodes: nodes is forbidden") {
		t.Errorf("%+v, %v", c, c.Unknown)
	}
	server.Close()
	if _, err := Read(t.Context(), &rest.Config{Host: server.URL}, "capture-cni"); err == nil || !strings.Contains(err.Error(), "reading the API server's version") {
		t.Errorf("without an API server: %v", err)
	}
}

func withType(c *corev1.ConfigMap) *corev1.ConfigMap {
	c.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	return c
}
