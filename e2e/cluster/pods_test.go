// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// restricted is what a careful operator enforces in every namespace.
const restricted = "pod-security.kubernetes.io/enforce=restricted"

// space is a namespace of one test's.
type space struct{ name string }

// newSpace makes a namespace with labels; it goes with the test, which tells
// what was in it if it failed.
func newSpace(t *testing.T, labels ...string) space {
	t.Helper()
	requireCluster(t)
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-", " ", "-").Replace(t.Name()))
	s := space{name + "-" + strings.ToLower(rand.Text()[:5])} // the last run's may not have gone yet
	manifest := corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: s.name, Labels: map[string]string{}}}
	for _, label := range labels {
		key, value, _ := strings.Cut(label, "=")
		manifest.Labels[key] = value
	}
	_, err := c.Kubectl(t.Context(), encoded(t, manifest), "create", "--filename=-")
	check(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			s.tell(t)
		}
		// allEnded wants to see its pods gone, when all tests are over.
		if _, err := c.Kubectl(context.Background(), "", "delete", "namespace", s.name, "--wait=false"); err != nil {
			t.Error(err)
		}
	})
	// No pod without it; the controllers may be slow to see that the API server is back.
	s.kubectl(t, "", "wait", "--for=create", patience, "serviceaccount/default")
	return s
}

// tell logs what an operator would look at. Of other tests' pods it says
// nothing: what failed has to be in sight above it.
func (s space) tell(t *testing.T) {
	for _, args := range [][]string{
		{"--namespace", s.name, "get", "pods", "-o", "wide"},
		{"--namespace", s.name, "get", "events", "--sort-by=.lastTimestamp"},
		{"--namespace", cluster.Namespace, "get", "pods", "-o", "wide"},
		{"--namespace", cluster.Namespace, "logs", "daemonset/capture-cni-node", "--all-pods", "--all-containers", "--tail=50", "--prefix"},
	} {
		out, err := c.Kubectl(context.Background(), "", args...)
		lines := slices.DeleteFunc(strings.Split(out, "\n"), func(line string) bool {
			return strings.Contains(line, " pod=") && !strings.Contains(line, " pod="+s.name+"/")
		})
		t.Logf("kubectl %s\n%s\n%v", strings.Join(args, " "), strings.Join(lines, "\n"), err)
	}
}

func (s space) kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := c.Kubectl(t.Context(), stdin, append([]string{"--namespace", s.name}, args...)...)
	check(t, err)
	return out
}

// newPod is a pod as a restricted namespace wants it; args are what its
// application does. An empty node leaves the choice to the scheduler.
func newPod(name, node string, args ...string) *corev1.Pod {
	grace, yes, no, uid := int64(1), true, false, int64(1000)
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}, Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &no,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: &yes, RunAsUser: &uid, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "app", Image: cluster.AppImage, ImagePullPolicy: corev1.PullNever, Args: args,
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
			}},
		},
	}
}

// server serves TCP and is asked by others.
func server(name, node string) *corev1.Pod { return newPod(name, node, "serve", "tcp", ":8080") }

// create makes pods and waits for nothing.
func (s space) create(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	check(t, s.tryCreate(t.Context(), pods...))
}

func (s space) tryCreate(ctx context.Context, pods ...*corev1.Pod) error {
	var manifests strings.Builder
	for _, pod := range pods {
		if err := json.NewEncoder(&manifests).Encode(pod); err != nil {
			return err
		}
	}
	_, err := c.Kubectl(ctx, manifests.String(), "--namespace", s.name, "create", "--filename=-")
	return err
}

// ready waits until pods are.
func (s space) ready(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	args := []string{"wait", "--for=condition=Ready", patience}
	for _, pod := range pods {
		args = append(args, "pod/"+pod.Name)
	}
	s.kubectl(t, "", args...)
}

// run creates pods and waits until they are ready.
func (s space) run(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	s.create(t, pods...)
	s.ready(t, pods...)
}

// remove deletes pods and waits until they have gone.
func (s space) remove(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	args := []string{"delete", "pod", patience}
	for _, pod := range pods {
		args = append(args, pod.Name)
	}
	s.kubectl(t, "", args...)
}

// get reads a pod as the API server has it.
func (s space) get(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	check(t, json.Unmarshal([]byte(s.kubectl(t, "", "get", "pod", name, "-o", "json")), pod))
	return pod
}

// addresses are a pod's of IPv4 and IPv6.
func (s space) addresses(t *testing.T, name string) (v4, v6 netip.Addr) {
	t.Helper()
	for _, ip := range s.get(t, name).Status.PodIPs {
		if address := netip.MustParseAddr(ip.IP); address.Is4() {
			v4 = address
		} else {
			v6 = address
		}
	}
	return v4, v6
}

// ask has a pod's application connect, and gives everybody who was on the way.
func (s space) ask(t *testing.T, pod, network string, to string, from ...string) []lab.Answer {
	t.Helper()
	hops, err := s.tryAsk(t.Context(), pod, network, to, from...)
	check(t, err)
	return hops
}

func (s space) tryAsk(ctx context.Context, pod, network string, to string, from ...string) ([]lab.Answer, error) {
	args := append([]string{"--namespace", s.name, "exec", pod, "--container", "app", "--", "/apps", "ask", network, to}, from...)
	out, err := c.Kubectl(ctx, "", args...)
	if err != nil {
		return nil, err
	}
	hops, err := parseHops(out)
	if err != nil {
		return nil, fmt.Errorf("%s asking %s: %w", pod, to, err)
	}
	return hops, nil
}

// parseHops reads what those on the way say, each in a line.
func parseHops(said string) (hops []lab.Answer, err error) {
	for line := range strings.Lines(said) {
		var hop lab.Answer
		if err := json.Unmarshal([]byte(line), &hop); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		hops = append(hops, hop)
	}
	return hops, nil
}

// names are those of hops, in their order.
func names(hops []lab.Answer) string {
	var all []string
	for _, hop := range hops {
		all = append(all, hop.Server)
	}
	return strings.Join(all, " ")
}

// errNowhere is a pod that no node runs.
var errNowhere = errors.New("no node runs it")

// sandbox finds a pod on its node. Errors: errNowhere.
func (s space) sandbox(ctx context.Context, name string) (cluster.Sandbox, error) {
	for _, node := range c.Nodes {
		sandboxes, err := node.Sandboxes(ctx)
		if err != nil {
			return cluster.Sandbox{}, err
		}
		for _, found := range sandboxes {
			if found.Namespace == s.name && found.Name == name {
				return found, nil
			}
		}
	}
	return cluster.Sandbox{}, fmt.Errorf("%w: %s/%s", errNowhere, s.name, name)
}

// rules tells what capture rules a pod's namespace holds: by which backend of
// ours ("" for none), and whose else.
func (s space) rules(t *testing.T, name string) netfilter.State {
	t.Helper()
	sandbox, err := s.sandbox(t.Context(), name)
	check(t, err)
	return rulesOf(t, sandbox)
}

func rulesOf(t *testing.T, sandbox cluster.Sandbox) netfilter.State {
	t.Helper()
	state, err := inspect(sandbox)
	check(t, err)
	return state
}

func inspect(sandbox cluster.Sandbox) (state netfilter.State, err error) {
	host, err := sandbox.Host()
	if err != nil {
		return state, err
	}
	defer host.NetNS.Close()
	err = host.Do(func() (err error) {
		state, err = netfilter.Inspect(context.Background())
		return err
	})
	return state, err
}
