// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/report"
)

const agentsAccount = "system:serviceaccount:" + cluster.Namespace + ":capture-cni-node"

// TestAgentPolicies expects the API server to refuse Events, evictions, Leases and tokens
// by an agent's token, except those that the agent itself makes or requests.
func TestAgentPolicies(t *testing.T) {
	c.InstallChart(t, "guard.policy=evict", "netconf.excludeNamespaces={kube-*}")
	newNamespace(t, namespaceFree)
	t.Run("events", testEventsPolicy)
	t.Run("evictions", testEvictPolicy)
	t.Run("leases", testLeasePolicy)
	t.Run("tokens", testTokensPolicy)
}

// asAgent returns the flags with which kubectl impersonates the agent of a node.
func asAgent(node string) []string {
	args := []string{"--as=" + agentsAccount}
	if node != "" {
		args = append(args, "--as-user-extra=authentication.kubernetes.io/node-name="+node)
	}
	return args
}

// agentsEvent returns an Event as telemetry builds it.
func agentsEvent() *corev1.Event {
	return &corev1.Event{
		TypeMeta:       metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespaceFree, Name: "web.1"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: namespaceFree, Name: "web", UID: "1"},
		Type:           corev1.EventTypeWarning, Reason: "CaptureFailed", Message: "x", Count: 1,
		Source:              corev1.EventSource{Component: "capture-cni", Host: "node1"},
		ReportingController: "capture-cni", ReportingInstance: "node1",
	}
}

func aboutNode(e *corev1.Event, name string) {
	e.Namespace, e.InvolvedObject = "default", corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: name}
}

func testEventsPolicy(t *testing.T) {
	const (
		another = "an agent may post Events of capture-cni and its own node alone, which is"
		noPod   = "an agent may post Events about pods and its own node alone"
		owned   = "must have no labels, annotations, finalizers and owners"
	)
	var waited sync.Once // until the policy is in effect
	for _, tt := range []struct {
		name, from string
		change     func(*corev1.Event)
		refused    string
	}{
		{"another node", "node2", func(*corev1.Event) {}, another + " node2"},
		{"a token of no node's", "", func(*corev1.Event) {}, another},
		{"no host", "node1", func(e *corev1.Event) { e.Source.Host = "" }, another},
		{"another component", "node1", func(e *corev1.Event) { e.Source.Component = "kubelet" }, another},
		{"a look-alike", "node1", func(e *corev1.Event) { e.Source.Component = "c\u0430pture-cni" }, another},
		{"another controller", "node1", func(e *corev1.Event) { e.ReportingController = "kubelet" }, another},
		{"another instance", "node1", func(e *corev1.Event) { e.ReportingInstance = "node2" }, another},
		{"about a secret", "node1", func(e *corev1.Event) { e.InvolvedObject.Kind = "Secret" }, noPod},
		{"about another node", "node1", func(e *corev1.Event) { aboutNode(e, "node2") }, noPod},
		{"about its node", "node1", func(e *corev1.Event) { aboutNode(e, "node1") }, ""},
		{"another reason", "node1", func(e *corev1.Event) { e.Reason = "BackOff" }, "must begin with Capture"},
		{"with a label", "node1", func(e *corev1.Event) { e.Labels = map[string]string{"a": "b"} }, owned},
		{"with an annotation", "node1", func(e *corev1.Event) { e.Annotations = map[string]string{"a": "b"} }, owned},
		{"with a finalizer", "node1", func(e *corev1.Event) { e.Finalizers = []string{"a.example/b"} }, owned},
		{"with an owner", "node1", func(e *corev1.Event) {
			e.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "web", UID: "1"}}
		}, owned},
		{"its own", "node1", func(*corev1.Event) {}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			event := agentsEvent()
			tt.change(event)
			file := write(t, suite.JSON(t, event))
			create := func() error {
				_, err := kubectl(t, append([]string{"create", "--dry-run=server", "-f", file}, asAgent(tt.from)...)...)
				return agentVerdict("events", tt.refused).check(err)
			}
			waited.Do(func() { waitForPolicy(t, create) })
			lab.Check(t, create())
			// The policy applies to agents alone.
			c.MustKubectl(t, "create", "--dry-run=server", "-f", file)
		})
	}
	// kubectl reads what it patches, which an agent is not allowed to.
	c.MustKubectl(t, "create", "role", "reader", "-n", namespaceFree, "--verb=get", "--resource=events")
	c.MustKubectl(t, "create", "rolebinding", "reader", "-n", namespaceFree, "--role=reader", "--serviceaccount="+cluster.Namespace+":capture-cni-node")
	for _, tt := range []struct{ name, host, patch, refused string }{
		{"counts", "node1", `{"count": 2, "lastTimestamp": null, "message": "y"}`, ""},
		{"another node's", "node2", `{"count": 2}`, another + " node1"},
		{"makes another node's its own", "node2", `{"source": {"host": "node1"}, "reportingInstance": "node1"}`, another + " node1"},
		{"another reason", "node1", `{"reason": "CaptureWarning"}`, "but not its subject, reason and type"},
		{"another pod", "node1", `{"involvedObject": {"name": "other"}}`, "but not its subject, reason and type"},
		{"a finalizer", "node1", `{"metadata": {"finalizers": ["a.example/b"]}}`, owned},
	} {
		t.Run("patch "+tt.name, func(t *testing.T) {
			event := agentsEvent()
			event.Name = "web." + strings.ReplaceAll(strings.ReplaceAll(tt.name, " ", "-"), "'", "")
			event.Source.Host, event.ReportingInstance = tt.host, tt.host
			c.MustKubectl(t, "create", "-f", write(t, suite.JSON(t, event)))
			_, err := kubectl(t, append([]string{"patch", "events", event.Name, "-n", namespaceFree, "--dry-run=server", "--type=merge", "--patch=" + tt.patch}, asAgent("node1")...)...)
			lab.Check(t, agentVerdict("events", tt.refused).check(err))
		})
	}
}

func agentVerdict(policy, refused string) verdict {
	if refused == "" {
		return verdict{}
	}
	return verdict{policy, refused}
}

func testEvictPolicy(t *testing.T) {
	pod := injectedPod(t)
	file := write(t, suite.JSON(t, pod))
	c.MustKubectl(t, "create", "-n", namespaceFree, "-f", file)
	uid := types.UID(c.MustKubectl(t, "get", "-n", namespaceFree, "-f", file, "-o", "jsonpath={.metadata.uid}"))
	now := int64(0)
	for _, tt := range []struct {
		name, namespace string
		options         *metav1.DeleteOptions
		refused         string
	}{
		{"by name", namespaceFree, nil, "must name the pod's uid"},
		{"at once", namespaceFree, &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}, GracePeriodSeconds: &now}, "keep the pod's grace period"},
		{"an agent", cluster.Namespace, &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}, "of a namespace that is never captured"},
		{"an excluded prefix", "kube-system", &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}, "of a namespace that is never captured"},
		{"by uid", namespaceFree, &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			eviction := write(t, suite.JSON(t, policy.Eviction{
				TypeMeta:      metav1.TypeMeta{Kind: "Eviction", APIVersion: "policy/v1"},
				ObjectMeta:    metav1.ObjectMeta{Namespace: tt.namespace, Name: pod.Name},
				DeleteOptions: tt.options,
			}))
			path := fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/eviction?dryRun=All", tt.namespace, pod.Name)
			waitForPolicy(t, func() error {
				_, err := kubectl(t, append([]string{"create", "-f", eviction, "--raw", path}, asAgent("node1")...)...)
				return agentVerdict("evict", tt.refused).check(err)
			})
		})
	}
}

func testLeasePolicy(t *testing.T) {
	const (
		another = "an agent may write the Lease of its own node alone, which is"
		labels  = "an agent may write Leases with the labels of capture-cni alone"
		owner   = "no owner but the agent's node"
	)
	lease := func(name string, change func(*coordination.Lease)) string {
		l := &coordination.Lease{
			TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
			ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: name, Labels: report.LeaseLabels()},
		}
		l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: name, UID: "1"}}
		change(l)
		return write(t, suite.JSON(t, l))
	}
	for _, tt := range []struct {
		name, node, from string
		change           func(*coordination.Lease)
		refused          string
	}{
		{"another node's", "node-2", "node-1", func(*coordination.Lease) {}, another + " node-1"},
		{"with a token of no node", "node-1", "", func(*coordination.Lease) {}, another},
		{"without labels", "node-1", "node-1", func(l *coordination.Lease) { l.Labels = nil }, labels},
		{"owned by another node", "node-1", "node-1", func(l *coordination.Lease) { l.OwnerReferences[0].Name = "node-2" }, owner},
		{"owned by a pod", "node-1", "node-1", func(l *coordination.Lease) { l.OwnerReferences[0].Kind = "Pod" }, owner},
		{"with a finalizer", "node-1", "node-1", func(l *coordination.Lease) { l.Finalizers = []string{"a.example/b"} }, owner},
		{"without an owner", "node-1", "node-1", func(l *coordination.Lease) { l.OwnerReferences = nil }, ""},
		{"its own", "node-1", "node-1", func(*coordination.Lease) {}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := lease(tt.node, tt.change)
			waitForPolicy(t, func() error {
				_, err := kubectl(t, append([]string{"create", "--dry-run=server", "-f", file}, asAgent(tt.from)...)...)
				return agentVerdict("lease", tt.refused).check(err)
			})
			c.MustKubectl(t, "create", "--dry-run=server", "-f", file) // the policy applies to agents alone
		})
	}
	// A Lease of another program, such as the lock of a controller, stays its own.
	c.MustKubectl(t, "create", "-f", lease("locked", func(l *coordination.Lease) { l.Labels, l.OwnerReferences = nil, nil }))
	file := lease("locked", func(l *coordination.Lease) { l.OwnerReferences = nil })
	waitForPolicy(t, func() error {
		_, err := kubectl(t, append([]string{"replace", "--dry-run=server", "-f", file}, asAgent("locked")...)...)
		return agentVerdict("lease", labels).check(err)
	})
}
