// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
)

// Restricted is the label by which a careful operator enforces Pod Security in
// every namespace.
const Restricted = "pod-security.kubernetes.io/enforce=restricted"

// Namespace is a namespace of one test.
type Namespace struct {
	Name  string
	suite *Suite
}

// NewNamespace creates a namespace with labels. It is deleted with the test,
// which logs the namespace's state if it failed.
func (c *Suite) NewNamespace(t *testing.T, labels ...string) Namespace {
	t.Helper()
	return c.NewNamespaceWith(t, "", labels...)
}

// NewNamespaceWith is NewNamespace with a prefix of the name.
func (c *Suite) NewNamespaceWith(t *testing.T, prefix string, labels ...string) Namespace {
	t.Helper()
	requireCluster(t)
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-", " ", "-").Replace(t.Name()))
	n := Namespace{prefix + name + "-" + strings.ToLower(rand.Text()[:5]), c} // the last run's may still be there
	manifest := corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{}}}
	for _, label := range labels {
		key, value, _ := strings.Cut(label, "=")
		manifest.Labels[key] = value
	}
	_, err := c.Kubectl(t.Context(), JSON(t, manifest), "create", "--filename=-")
	Check(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			n.logState(t)
		}
		// waitForNoPods sees the end of its pods, when all tests are over.
		if _, err := c.Kubectl(context.Background(), "", "delete", "namespace", n.Name, "--wait=false"); err != nil {
			t.Error(err)
		}
	})
	// No pod without it; the controllers may be slow to see that the API server is back.
	n.Kubectl(t, "", "wait", "--for=create", KubectlTimeout, "serviceaccount/default")
	return n
}

// logState logs what an operator would look at, without lines about pods of
// other tests.
func (n Namespace) logState(t *testing.T) {
	for _, args := range [][]string{
		{"--namespace", n.Name, "get", "pods", "-o", "wide"},
		{"--namespace", n.Name, "get", "events", "--sort-by=.lastTimestamp"},
		{"--namespace", cluster.Namespace, "get", "pods", "-o", "wide"},
		{"--namespace", cluster.Namespace, "logs", "daemonset/capture-cni-node", "--all-pods", "--all-containers", "--tail=50", "--prefix"},
	} {
		out, err := n.suite.Kubectl(context.Background(), "", args...)
		lines := slices.DeleteFunc(strings.Split(out, "\n"), func(line string) bool {
			return strings.Contains(line, " pod=") && !strings.Contains(line, " pod="+n.Name+"/")
		})
		t.Logf("kubectl %s\n%s\n%v", strings.Join(args, " "), strings.Join(lines, "\n"), err)
	}
}

// Kubectl runs kubectl in the namespace and returns what it prints.
func (n Namespace) Kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := n.suite.Kubectl(t.Context(), stdin, append([]string{"--namespace", n.Name}, args...)...)
	Check(t, err)
	return out
}

// Create creates pods and waits for nothing.
func (n Namespace) Create(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	Check(t, n.TryCreate(t.Context(), pods...))
}

// TryCreate is Create with an error for the caller.
func (n Namespace) TryCreate(ctx context.Context, pods ...*corev1.Pod) error {
	var manifests strings.Builder
	for _, pod := range pods {
		if err := json.NewEncoder(&manifests).Encode(pod); err != nil {
			return err
		}
	}
	_, err := n.suite.Kubectl(ctx, manifests.String(), "--namespace", n.Name, "create", "--filename=-")
	return err
}

// WaitReady waits until pods are ready.
func (n Namespace) WaitReady(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	args := []string{"wait", "--for=condition=Ready", KubectlTimeout}
	for _, pod := range pods {
		args = append(args, "pod/"+pod.Name)
	}
	n.Kubectl(t, "", args...)
}

// Run creates pods and waits until they are ready.
func (n Namespace) Run(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	n.Create(t, pods...)
	n.WaitReady(t, pods...)
}

// Delete deletes pods and waits until they have ended.
func (n Namespace) Delete(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	args := []string{"delete", "pod", KubectlTimeout}
	for _, pod := range pods {
		args = append(args, pod.Name)
	}
	n.Kubectl(t, "", args...)
}

// Get returns a pod as the API server has it.
func (n Namespace) Get(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	pod, err := n.TryGet(t.Context(), name)
	Check(t, err)
	return pod
}

// TryGet is Get with an error for the caller.
func (n Namespace) TryGet(ctx context.Context, name string) (*corev1.Pod, error) {
	out, err := n.suite.Kubectl(ctx, "", "--namespace", n.Name, "get", "pod", name, "-o", "json")
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{}
	if err := json.Unmarshal([]byte(out), pod); err != nil {
		return nil, fmt.Errorf("reading pod %s: %w", name, err)
	}
	return pod, nil
}

// List returns all pods of the namespace by name, as the API server has them.
func (n Namespace) List(t *testing.T) map[string]*corev1.Pod {
	t.Helper()
	list := &corev1.PodList{}
	Check(t, json.Unmarshal([]byte(n.Kubectl(t, "", "get", "pods", "-o", "json")), list))
	pods := map[string]*corev1.Pod{}
	for _, pod := range list.Items {
		pods[pod.Name] = &pod
	}
	return pods
}

// Addresses returns a pod's IPv4 and IPv6 addresses.
func (n Namespace) Addresses(t *testing.T, name string) (v4, v6 netip.Addr) {
	t.Helper()
	for _, ip := range n.Get(t, name).Status.PodIPs {
		if address := netip.MustParseAddr(ip.IP); address.Is4() {
			v4 = address
		} else {
			v6 = address
		}
	}
	return v4, v6
}
