// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
)

const (
	annotationFence  = "capture-cni.io/fence"
	annotationAllow  = "capture-cni.io/fence-allow"
	allowedException = "out:udp:53@10.96.0.10/32"
	noFence          = "the namespace requires a fence; set the annotation capture-cni.io/fence to true or strict"
	excess           = "exceptions of the fence that are not allowed: "
)

// fenced gives the pod a fence.
func fenced(value string, changes ...func(*corev1.Pod)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Annotations[annotationFence] = value
		for _, change := range changes {
			change(p)
		}
	}
}

func allowing(exceptions string) func(*corev1.Pod) {
	return fenced("true", func(p *corev1.Pod) { p.Annotations[annotationAllow] = exceptions })
}

var fenceAttempts = []attempt{
	{name: "true", policy: "fence", change: fenced("true")},
	{name: "strict, outside of a mesh", policy: "fence", change: fenced("strict", func(p *corev1.Pod) { delete(p.Annotations, "sidecar.istio.io/status") })},
	{name: "none", policy: "fence", refused: noFence},
	{name: "no annotations", policy: "fence", change: func(p *corev1.Pod) { p.Annotations = nil }, refused: noFence},
	{name: "false", policy: "fence", change: fenced("false"), refused: noFence},
	{name: "only exceptions", policy: "fence", change: func(p *corev1.Pod) { p.Annotations[annotationAllow] = allowedException }, refused: noFence},
	{name: "an allowed exception", policy: "fence", change: allowing(" " + allowedException + ",")},
	{name: "another exception", policy: "fence", change: allowing(allowedException + ", out:udp:53@0.0.0.0/0,in:tcp:1@::/0"), refused: excess + "out:udp:53@0.0.0.0/0, in:tcp:1@::/0;"},
	{name: "the node's processes", policy: "fence", change: fenced("true", func(p *corev1.Pod) { p.Spec.HostPID = true }), refused: "remove hostNetwork and hostPID"},
	{name: "another default network", policy: "fence", change: fenced("true", func(p *corev1.Pod) {
		p.Annotations["v1.multus-cni.io/default-network"] = "other"
	}), refused: "remove the annotation v1.multus-cni.io/default-network"},
	{name: "the node's network", policy: "fence", change: fenced("true", func(p *corev1.Pod) { p.Spec.HostNetwork = true }), refused: "remove hostNetwork"},
}

// testFence requires fences by the policy alone, also of a pod's changes and its binding to a
// node. In a labelled namespace, the guide's sample sets the fence that the chart requires.
func testFence(t *testing.T, mutates bool) {
	testAttempts(t, fenceAttempts)
	namespace := namespaceAlone("fence")
	pod := injectedPod(t)
	fenced("true")(pod)
	file := write(t, suite.JSON(t, pod))
	stored := parsePod(t, c.MustKubectl(t, "create", "-n", namespace, "-f", file, "-o", "json"))
	defer c.MustKubectl(t, "delete", "-n", namespace, "--now", "-f", file)
	for change, refused := range map[string]string{
		`{"metadata": {"annotations": {"` + annotationFence + `": null}}}`:                        noFence,
		`{"metadata": {"annotations": {"` + annotationAllow + `": "out:tcp:1-65535@0.0.0.0/0"}}}`: excess,
		`{"metadata": {"annotations": {"` + annotationFence + `": "strict"}}}`:                    "",
		`{"metadata": {"finalizers": ["example.com/x"]}}`:                                         "",
	} {
		for _, more := range [][]string{nil, {"--subresource=status"}} {
			args := append([]string{"patch", "-n", namespace, "-f", file, "--dry-run=server", "--patch-file", write(t, change)}, more...)
			if _, err := kubectl(t, args...); (verdict{map[bool]string{true: "fence"}[refused != ""], refused}).check(err) != nil {
				t.Errorf("%s %s: %v", change, more, err)
			}
		}
	}
	for annotations, refused := range map[string]string{"{}": "", `{"` + annotationFence + `": "false"}`: noFence} {
		binding := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Binding", "metadata": {"name": %q, "annotations": %s}, "target": {"kind": "Node", "name": "x"}}`, pod.Name, annotations)
		_, err := kubectl(t, "create", "-f", write(t, binding), "--raw", rawPath(stored, "binding"))
		if err := (verdict{map[bool]string{true: "fence"}[refused != ""], refused}).check(err); err != nil {
			t.Errorf("a binding with annotations %s: %v", annotations, err)
		}
	}
	labelled, plain := "admission-fence", write(t, suite.JSON(t, injectedPod(t)))
	newNamespace(t, labelled, "capture-cni.io/require-fence=true")
	create := func() (string, error) {
		return kubectl(t, "create", "-n", labelled, "--dry-run=server", "-o", "json", "-f", plain)
	}
	waitForPolicy(t, func() error {
		_, err := create()
		return verdict{"fence", noFence}.check(err)
	})
	if !mutates {
		return
	}
	const sample = "../../../deploy/guides/fence.yaml"
	c.MustKubectl(t, "apply", "-f", sample)
	t.Cleanup(func() { c.MustKubectl(t, "delete", "-f", sample) })
	waitForPolicy(t, func() error {
		out, err := create()
		if err == nil && !strings.Contains(out, `"`+annotationFence+`": "true"`) {
			err = fmt.Errorf("the pod has no fence: %s", out)
		}
		return err
	})
	for _, change := range []func(*corev1.Pod){fenced("strict"), func(p *corev1.Pod) { p.Annotations = nil }} {
		pod := injectedPod(t)
		change(pod)
		want := pod.Annotations[annotationFence]
		got := parsePod(t, c.MustKubectl(t, "create", "-n", labelled, "--dry-run=server", "-o", "json", "-f", write(t, suite.JSON(t, pod)))).Annotations[annotationFence]
		if want == "" {
			want = "true"
		}
		if got != want {
			t.Errorf("the fence is %q, want %q", got, want)
		}
	}
}
