// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// Restricted is the label by which a careful operator enforces Pod Security in
// every namespace.
const Restricted = "pod-security.kubernetes.io/enforce=restricted"

// Namespace is a namespace of one test.
type Namespace struct {
	Name  string
	suite *Suite
	api   *rest.RESTClient
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
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-", " ", "-", ".", "-").Replace(t.Name()))
	name = prefix + name + "-" + strings.ToLower(rand.Text()[:5]) // the last run's may still be there
	api, err := c.API()
	lab.Check(t, err)
	n := Namespace{name, c, api}
	manifest := corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{}}}
	for _, label := range labels {
		key, value, _ := strings.Cut(label, "=")
		manifest.Labels[key] = value
	}
	_, err = c.Kubectl(t.Context(), JSON(t, manifest), "create", "--filename=-")
	lab.Check(t, err)
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
	lab.Check(t, err)
	return out
}

// Create creates pods and waits for nothing.
func (n Namespace) Create(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	lab.Check(t, n.TryCreate(t.Context(), pods...))
}

// TryCreate is Create with an error for the caller.
func (n Namespace) TryCreate(ctx context.Context, pods ...*corev1.Pod) error {
	for _, pod := range pods {
		if err := n.api.Post().Namespace(n.Name).Resource("pods").Body(pod).Do(ctx).Error(); err != nil {
			return fmt.Errorf("creating pod %s: %w", pod.Name, err)
		}
	}
	return nil
}

// WaitReady waits until pods are ready.
func (n Namespace) WaitReady(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	for _, pod := range pods {
		lab.Eventually(t, func() error {
			found, err := n.TryGet(t.Context(), pod.Name)
			if err == nil && !isReady(found) {
				err = fmt.Errorf("pod %s is not ready: %s", pod.Name, found.Status.Phase)
			}
			return err
		})
	}
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
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
	var names []string
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	lab.Check(t, n.TryDelete(t.Context(), names...))
}

// TryDelete is Delete with an error for the caller.
func (n Namespace) TryDelete(ctx context.Context, names ...string) error {
	ctx, cancel := context.WithTimeout(ctx, cluster.Timeout)
	defer cancel()
	for _, name := range names {
		if err := n.api.Delete().Namespace(n.Name).Resource("pods").Name(name).Do(ctx).Error(); err != nil {
			return fmt.Errorf("deleting pod %s: %w", name, err)
		}
	}
	for _, name := range names {
		_, err := n.TryGet(ctx, name)
		for ; err == nil; _, err = n.TryGet(ctx, name) {
			time.Sleep(200 * time.Millisecond)
		}
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("waiting for the end of pod %s: %w", name, err)
		}
	}
	return nil
}

// Get returns a pod as the API server has it.
func (n Namespace) Get(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	pod, err := n.TryGet(t.Context(), name)
	lab.Check(t, err)
	return pod
}

// TryGet is Get with an error for the caller.
func (n Namespace) TryGet(ctx context.Context, name string) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	return pod, n.api.Get().Namespace(n.Name).Resource("pods").Name(name).Do(ctx).Into(pod)
}

// List returns all pods of the namespace by name, as the API server has them.
func (n Namespace) List(t *testing.T) map[string]*corev1.Pod {
	t.Helper()
	list := &corev1.PodList{}
	lab.Check(t, n.api.Get().Namespace(n.Name).Resource("pods").Do(t.Context()).Into(list))
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
