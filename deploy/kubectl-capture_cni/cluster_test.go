// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/report"
)

// cluster is an API server with DaemonSets, Nodes, pods, Leases and Events.
type cluster struct {
	url string

	mu      sync.Mutex
	set     appsv1.DaemonSet
	nodes   []corev1.Node
	pods    []corev1.Pod
	leases  []coordination.Lease
	events  []corev1.Event
	denied  string // a resource
	version string
	hostile string        // "an error" or "a warning" that each answer contains; empty means none
	lists   int           // number of requests that listed Leases
	user    string        // user whom the last request impersonated
	changed chan struct{} // closed by the next change
}

// change changes the cluster, and notifies the watches.
func (c *cluster) change(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
	close(c.changed)
	c.changed = make(chan struct{})
}

// watch sends all objects of a list as modified objects: once, because they can have changed since the
// list, and after each change.
func (c *cluster) watch(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		http.Error(w, "no streaming of lists", http.StatusUnprocessableEntity)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for {
		c.mu.Lock()
		changed := c.changed
		var items []any
		switch parts := strings.Split(r.URL.Path, "/"); parts[len(parts)-1] {
		case "daemonsets":
			items = append(items, withKind(c.set, "apps/v1", "DaemonSet"))
		case "leases":
			for _, lease := range c.leases {
				items = append(items, withKind(lease, "coordination.k8s.io/v1", "Lease"))
			}
		case "pods":
			for _, pod := range c.pods {
				items = append(items, withKind(pod, "v1", "Pod"))
			}
		}
		for _, item := range items {
			_ = json.NewEncoder(w).Encode(map[string]any{"type": "MODIFIED", "object": item})
		}
		c.mu.Unlock()
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
	}
}

// withKind returns an object with its API version and kind, as an API server writes it.
func withKind(object any, version, kind string) map[string]any {
	text, _ := json.Marshal(object)
	fields := map[string]any{}
	_ = json.Unmarshal(text, &fields)
	fields["apiVersion"], fields["kind"] = version, kind
	return fields
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{set: daemonSet, changed: make(chan struct{})}
	server := httptest.NewServer(c)
	t.Cleanup(server.CloseClientConnections)
	c.url = server.URL
	return c
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") == "true" && c.hostile == "" {
		c.watch(w, r)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.user = r.Header.Get("Impersonate-User")
	w.Header().Set("Content-Type", "application/json")
	answer := func(code int, object any) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(object)
	}
	if answerHostile(w, c.hostile) {
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	of := func(version, kind string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: version, Kind: kind} }
	switch last := parts[len(parts)-1]; {
	case c.denied != "" && strings.Contains(r.URL.Path, c.denied):
		answer(http.StatusForbidden, metav1.Status{TypeMeta: of("v1", "Status"), Status: metav1.StatusFailure, Code: 403, Reason: metav1.StatusReasonForbidden, Message: c.denied + " is forbidden"})
	case last == "version":
		answer(http.StatusOK, map[string]string{"gitVersion": c.version})
	case last == "nodes":
		answer(http.StatusOK, corev1.NodeList{TypeMeta: of("v1", "NodeList"), Items: c.nodes})
	case r.URL.Path == "/api/v1/namespaces" && r.Method == http.MethodGet && r.URL.Query().Get("labelSelector") == "":
		answer(http.StatusOK, corev1.NamespaceList{TypeMeta: of("v1", "NamespaceList"), Items: []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}}})
	case r.URL.Path == "/api/v1/configmaps":
		answer(http.StatusOK, corev1.ConfigMapList{TypeMeta: of("v1", "ConfigMapList")})
	case last == "mutatingwebhookconfigurations":
		answer(http.StatusOK, admissionv1.MutatingWebhookConfigurationList{TypeMeta: of("admissionregistration.k8s.io/v1", "MutatingWebhookConfigurationList")})
	case last == "daemonsets":
		answer(http.StatusOK, appsv1.DaemonSetList{TypeMeta: of("apps/v1", "DaemonSetList"), Items: []appsv1.DaemonSet{c.set}})
	case last == "leases":
		answer(http.StatusOK, coordination.LeaseList{TypeMeta: of("coordination.k8s.io/v1", "LeaseList"), Items: c.leases})
		c.lists++
	case last == "pods":
		answer(http.StatusOK, corev1.PodList{TypeMeta: of("v1", "PodList"), Items: c.pods})
	case last == "events":
		answer(http.StatusOK, corev1.EventList{TypeMeta: of("v1", "EventList"), Items: c.events})
	case len(parts) == 4 && parts[2] == "nodes":
		for _, node := range c.nodes {
			if node.Name == last {
				node.TypeMeta = of("v1", "Node")
				answer(http.StatusOK, node)
				return
			}
		}
		answer(http.StatusNotFound, metav1.Status{TypeMeta: of("v1", "Status"), Status: metav1.StatusFailure, Code: 404, Reason: metav1.StatusReasonNotFound})
	case len(parts) == 6 && parts[4] == "services":
		service := corev1.Service{TypeMeta: of("v1", "Service")}
		service.Spec.ClusterIP = map[string]string{"shop/cart": "10.96.0.7", "mesh/cart": "fd00::7", "shop/headless": "None"}[parts[3]+"/"+last]
		service.Spec.Ports = []corev1.ServicePort{{Name: "http", Port: 80}}
		answer(http.StatusOK, service)
	case len(parts) == 7 && parts[5] == "leases":
		for _, lease := range c.leases {
			if lease.Name == last {
				lease.TypeMeta = of("coordination.k8s.io/v1", "Lease")
				answer(http.StatusOK, lease)
				return
			}
		}
		answer(http.StatusNotFound, metav1.Status{TypeMeta: of("v1", "Status"), Status: metav1.StatusFailure, Code: 404, Reason: metav1.StatusReasonNotFound})
	case len(parts) == 6 && parts[4] == "pods":
		for _, pod := range c.pods {
			if pod.Namespace == parts[3] && pod.Name == last {
				pod.TypeMeta = of("v1", "Pod")
				answer(http.StatusOK, pod)
				return
			}
		}
		answer(http.StatusNotFound, metav1.Status{TypeMeta: of("v1", "Status"), Status: metav1.StatusFailure, Code: 404, Reason: metav1.StatusReasonNotFound, Message: "pods " + last + " not found"})
	default:
		answer(http.StatusNotFound, metav1.Status{TypeMeta: of("v1", "Status"), Status: metav1.StatusFailure, Code: 404, Reason: metav1.StatusReasonNotFound})
	}
}

func (c *cluster) client(t *testing.T) *fleet.Client {
	t.Helper()
	client, err := fleet.NewClient(&rest.Config{Host: c.url})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// run executes a command, and returns its output and its exit status.
func (c *cluster) run(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, errors bytes.Buffer
	status = execute(t.Context(), append(args, "--server", c.url, "--kubeconfig", "/dev/null"), newScreen(&out), newScreen(&errors))
	return out.String(), errors.String(), status
}

var daemonSet = appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "capture-cni", Name: "capture-cni-node", UID: "daemon-set"}}

// addNode adds a node with its agent and its Lease.
func (c *cluster) addNode(name string, ago time.Duration, state report.NodeState) {
	c.nodes = append(c.nodes, corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{OperatingSystem: "linux", KernelVersion: "6.12.0", ContainerRuntimeVersion: "containerd://2.1.4"},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	})
	holder, seconds, renewed := "agent-"+name, int32(660), metav1.NewMicroTime(time.Now().Add(-ago))
	c.leases = append(c.leases, coordination.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "capture-cni", Name: name, Labels: report.LeaseLabels(), Annotations: map[string]string{report.NodeAnnotation: state.Encode()}},
		Spec:       coordination.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &renewed},
	})
	c.pods = append(c.pods, corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "capture-cni", Name: holder, Labels: map[string]string{"app.kubernetes.io/name": "capture-cni", "app.kubernetes.io/component": "node"}, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&daemonSet, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))}},
		Spec:       corev1.PodSpec{NodeName: name, HostNetwork: true, ServiceAccountName: "capture-cni-node", Containers: []corev1.Container{{Name: "installer", Env: []corev1.EnvVar{{Name: fleet.NetConfVariable, Value: "{}"}}}, {Name: "guard"}}},
		Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	})
}

// addPod adds a pod of the mesh.
func (c *cluster) addPod(node, name string, change func(*corev1.Pod)) {
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: "1", Annotations: map[string]string{"sidecar.istio.io/status": "{}"}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "app"}, {Name: "istio-proxy"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if change != nil {
		change(&pod)
	}
	c.pods = append(c.pods, pod)
}

func state(pods *report.Pods) report.NodeState {
	return report.NodeState{Version: "v0.4.0", Mode: "dropin", Desired: "present", Pods: pods}
}
