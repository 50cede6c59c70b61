// SPDX-License-Identifier: Apache-2.0

package guides

const (
	image     = "a push needs a registry; deploy/image.TestBothArchitectures builds the image"
	istiod    = "istiod's chart comes from a registry; e2e/cluster/mesh.TestSidecars installs istiod with this value"
	test      = "e2e/cluster/agents.TestKubectlTest runs it"
	onNode    = "it is for a shell on a node"
	nodeImage = "it is for a node image; tried by hand, as the guide says"
	openShift = "no OpenShift; e2e/cluster/pods.TestMultus and e2e/cluster/pods.TestMultusChain install the chart with Multus on other nodes, deploy.TestSCC renders it"
	manifest  = "its image is a release's; e2e/cluster/apiserver.TestAPIServer applies the chart's manifest"
	linkerd   = "Linkerd's charts come from a registry; e2e/cluster/pods.TestOtherSidecars installs the chart with this value"
	consul    = "Consul's and Kuma's charts come from a registry; e2e/cluster/pods.TestOtherSidecars installs the chart with this value"
	taints    = "it needs a node with the taint; e2e/cluster/agents.TestTaint and e2e/cluster/agents.TestTaintStays have one"
)

// exempt are the commands that no test runs as they are written.
var exempt = []exemption{
	{"guides/install.md", "make build && export PATH=", image},
	{"guides/install.md", "make image", image},
	{"guides/install.md", "mkdir layout && tar ", image},
	{"guides/install.md", "kubectl apply -f deploy/capture-cni.yaml", manifest},
	{"guides/install.md", "helm -n istio-system upgrade istiod ", istiod},
	{"guides/install.md", "istioctl install ", istiod},
	{"guides/install.md", "kubectl capture-cni test", test},
	{"guides/debug.md", "kubectl capture-cni test", test},
	{"guides/kubectl.md", "kubectl capture-cni test", test},
	{"guides/nodes.md", "kubectl capture-cni test", test},
	{"../README.md", "make demo", "it prints for people, who look at it"},
	{"../README.md", "make test", "this is it"},
	{"../README.md", "make build image && export PATH=", image},
	{"../README.md", "mkdir layout && tar ", image},
	{"guides/remove.md", "kubectl -n capture-cni patch daemonset capture-cni-node --type json", manifest},
	{"guides/remove.md", "kubectl delete -f deploy/capture-cni.yaml", manifest},
	{"guides/remove.md", "capture-cni-node uninstall", onNode},

	{"guides/migrate-istio-cni.md", "kubectl debug node/NODE ", "it pulls an image; e2e/cluster/mesh.TestIstioCNIRestarted reads these files"},
	{"guides/migrate-istio-cni.md", "kubectl capture-cni test", test},

	{"guides/migrate-linkerd-cni.md", "helm -n capture-cni ", linkerd},
	{"guides/migrate-linkerd-cni.md", "helm -n linkerd-cni uninstall linkerd-cni", linkerd},
	{"guides/migrate-linkerd-cni.md", "kubectl capture-cni ", linkerd},
	{"guides/migrate-linkerd-cni.md", "kubectl -n capture-cni rollout status ", linkerd},
	{"guides/migrate-linkerd-cni.md", "kubectl -n NAMESPACE rollout restart ", linkerd},

	{"guides/migrate-consul-kuma.md", "helm -n capture-cni ", consul},
	{"guides/migrate-consul-kuma.md", "kubectl -n consul patch daemonset ", consul},
	{"guides/migrate-consul-kuma.md", "helm -n kuma-system upgrade ", consul},
	{"guides/migrate-consul-kuma.md", "kubectl -n kuma-system rollout status ", consul},
	{"guides/migrate-consul-kuma.md", "kubectl taint nodes --all NodeReadiness:NoSchedule-", consul},
	{"guides/migrate-consul-kuma.md", "kubectl capture-cni ", consul},
	{"guides/migrate-consul-kuma.md", "kubectl -n capture-cni rollout status ", consul},
	{"guides/migrate-consul-kuma.md", "kubectl -n NAMESPACE rollout restart ", consul},

	{"guides/verify.md", "export ", "the test's release has another signer and registry"},
	{"guides/verify.md", "make release ", "deploy/release.TestBothArchitectures builds one twice"},

	{"guides/openshift.md", "kubectl label namespace capture-cni ", openShift},
	{"guides/openshift.md", "helm -n capture-cni install capture-cni deploy/chart ", openShift},
	{"guides/openshift.md", "helm -n capture-cni upgrade capture-cni deploy/chart ", openShift},
	{"guides/openshift.md", "kubectl -n default annotate net-attach-def ", openShift},
	{"guides/openshift.md", "kubectl -n default delete net-attach-def ", openShift},
	{"guides/openshift.md", "kubectl -n default get net-attach-def ", openShift},

	{"guides/taint.md", "kubelet --register-with-taints=", taints},
	{"guides/taint.md", "cluster-autoscaler --startup-taint=", "no cluster autoscaler"},
	{"guides/taint.md", "helm -n capture-cni upgrade capture-cni deploy/chart --reset-then-reuse-values --set taint.remove=true", taints},
	{"guides/taint.md", "kubectl -n default get events --field-selector reason=CaptureNotReady", taints},
	{"guides/taint.md", "kubectl taint node NODE capture-cni.io/not-ready-", taints},

	{"guides/node-images.md", "mkdir -p /etc/cni/net.d/PODNET", nodeImage},
	{"guides/node-images.md", "cat > /etc/cni/net.d/PODNET/capture-cni.conf", nodeImage},
	{"guides/node-images.md", "capture-cni-node ", nodeImage},
	{"guides/node-images.md", "helm -n capture-cni install capture-cni deploy/chart --set nodeSelector.capture-cni=none", nodeImage},
	{"guides/node-images.md", "kubectl -n capture-cni create rolebinding node-images ", nodeImage},
	{"guides/node-images.md", "kubectl create clusterrolebinding node-images ", nodeImage},
}
