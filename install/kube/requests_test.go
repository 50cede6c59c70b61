// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/httplimit"
)

func accessTo(server *kubeapi.Server) *rest.Config {
	return &rest.Config{Host: server.URL, BearerToken: server.Token(), TLSClientConfig: rest.TLSClientConfig{CAData: server.Cert.PEM}}
}

func clientFor(t *testing.T, server *kubeapi.Server) *Client {
	t.Helper()
	access := accessTo(server)
	access.QPS = -1 // no test waits for its turn
	client, err := New(access)
	lab.Check(t, err)
	return client
}

// requestTests has each request of the client as the API server receives it, and the error
// for an API server that forbids the request.
var requestTests = []struct {
	make                     func(context.Context, *Client) error
	request, document, fault string
}{
	{func(ctx context.Context, c *Client) error {
		_, err := c.Pod(ctx, capture.PodRef{Namespace: "shop", Name: "web"})
		return err
	}, "GET /api/v1/namespaces/shop/pods/web", "", "reading pod shop/web: no"},
	{ // an Eviction of this pod, and of no other that has its name by then
		func(ctx context.Context, c *Client) error {
			return c.Evict(ctx, capture.PodRef{Namespace: "shop", Name: "web", UID: "uid-of-web"})
		}, "POST /api/v1/namespaces/shop/pods/web/eviction",
		`{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"namespace": "shop", "name": "web"}, "deleteOptions": {"preconditions": {"uid": "uid-of-web"}}}`,
		"evicting pod shop/web: no",
	},
	{
		func(ctx context.Context, c *Client) error { return c.CreateEvent(ctx, &event) }, "POST /api/v1/namespaces/shop/events",
		`{"apiVersion": "v1", "kind": "Event", "metadata": {"namespace": "shop", "name": "web.1"}, "involvedObject": {}, "source": {},
			"firstTimestamp": null, "lastTimestamp": "1970-01-01T00:00:07Z", "eventTime": null, "reportingComponent": "", "reportingInstance": "",
			"message": "captured", "count": 3}`,
		"posting an Event: no",
	},
	{
		func(ctx context.Context, c *Client) error { return c.RecountEvent(ctx, &event) }, "PATCH /api/v1/namespaces/shop/events/web.1",
		`{"count": 3, "lastTimestamp": "1970-01-01T00:00:07Z", "message": "captured"}`, "updating an Event: no",
	},
	{func(ctx context.Context, c *Client) error {
		_, err := c.Lease(ctx, "mesh", "node-1")
		return err
	}, "GET " + leases + "/node-1", "", "reading Lease mesh/node-1: no"},
	{func(ctx context.Context, c *Client) error {
		_, err := c.CreateLease(ctx, &lease1)
		return err
	}, "POST " + leases, lease1JSON, "creating Lease mesh/node-1: no"},
	{func(ctx context.Context, c *Client) error {
		_, err := c.UpdateLease(ctx, &lease1)
		return err
	}, "PUT " + leases + "/node-1", lease1JSON, "updating Lease mesh/node-1: no"},
	{func(ctx context.Context, c *Client) error { _, err := c.Node(ctx, ownNode, ""); return err }, "GET /api/v1/nodes/node1", "", "reading node node1: no"},
	{func(ctx context.Context, c *Client) error {
		_, err := c.Node(ctx, ownNode, "0")
		return err
	}, "GET /api/v1/nodes/node1?resourceVersion=0", "", "reading node node1: no"},
	{ // the last one first: the numbers of the others stay
		func(ctx context.Context, c *Client) error {
			return c.RemoveTaint(ctx, tainted("late", "other", "late"), "late")
		},
		"PATCH /api/v1/nodes/node1", `[{"op": "test", "path": "/spec/taints/2/key", "value": "late"}, {"op": "remove", "path": "/spec/taints/2"},
			{"op": "test", "path": "/spec/taints/0/key", "value": "late"}, {"op": "remove", "path": "/spec/taints/0"}]`,
		"removing taint late from node node1: no",
	},
	{func(ctx context.Context, c *Client) error {
		_, err := c.RequestToken(ctx, TokenSpec{Namespace: "mesh", ServiceAccount: "agent", Node: ownNode, TTL: time.Hour})
		return err
	}, "POST /api/v1/namespaces/mesh/serviceaccounts/agent/token", `{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {},
		"spec": {"audiences": null, "expirationSeconds": 3600, "boundObjectRef": {"kind": "Node", "apiVersion": "v1", "name": "node1"}},
		"status": {"token": "", "expirationTimestamp": null}}`, "requesting a token for service account mesh/agent: no"},
}

const (
	leases     = "/apis/coordination.k8s.io/v1/namespaces/mesh/leases"
	lease1JSON = `{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"namespace": "mesh", "name": "node-1"}, "spec": {"holderIdentity": "agent"}}`
)

var (
	lease1 = coordination.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "mesh", Name: "node-1"}, Spec: coordination.LeaseSpec{HolderIdentity: new("agent")}}
	event  = corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web.1"},
		Message:    "captured", Count: 3, LastTimestamp: metav1.Unix(7, 0),
	}
)

func tainted(keys ...string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ownNode}}
	for _, key := range keys {
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key})
	}
	return node
}

// TestRequests makes each request of an API server that accepts it, that forbids it, and
// that answers with more than an object takes.
func TestRequests(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	client := clientFor(t, server)
	var request, document string
	answer := func(code int, body string) {
		server.Misbehave(func(w http.ResponseWriter, r *http.Request) bool {
			received, err := io.ReadAll(r.Body)
			if err != nil || r.Header.Get("Authorization") != "Bearer "+server.Token() {
				t.Errorf("%v, %q", err, r.Header)
			}
			request, document = r.Method+" "+r.URL.RequestURI(), string(received)
			if code != http.StatusOK {
				kubeapi.WriteStatus(w, r, code, metav1.StatusReasonForbidden, body)
				return true
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, body)
			return true
		})
	}
	for _, tt := range requestTests {
		answer(http.StatusOK, `{"metadata": {"name": "stored"}}`)
		err := tt.make(t.Context(), client)
		if request != tt.request || err != nil {
			t.Errorf("%s, %v; want %s", request, err, tt.request)
		}
		if diff := cmp.Diff(decoded(t, tt.document), decoded(t, document)); diff != "" {
			t.Errorf("%s: %s", tt.request, diff)
		}
		answer(http.StatusForbidden, "no")
		if err := tt.make(t.Context(), client); err == nil || err.Error() != tt.fault {
			t.Errorf("%s is forbidden: %v, want %s", tt.request, err, tt.fault)
		}
		answer(http.StatusOK, strings.Repeat(" ", httplimit.MaxObject+1))
		if err := tt.make(t.Context(), client); err == nil || !strings.Contains(err.Error(), "is larger than 4 MiB") {
			t.Errorf("%s is answered without an end: %v", tt.request, err)
		}
	}
}

// decoded is a JSON document without its keys that are null.
func decoded(t *testing.T, document string) (value any) {
	t.Helper()
	if document != "" {
		lab.Check(t, json.Unmarshal([]byte(document), &value))
	}
	if object, ok := value.(map[string]any); ok {
		if metadata, ok := object["metadata"].(map[string]any); ok && metadata["creationTimestamp"] == nil {
			delete(metadata, "creationTimestamp")
		}
	}
	return value
}

// TestAnswers returns the objects of an API server.
func TestAnswers(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	client := clientFor(t, server)
	server.Put(podOn(ownNode, "web", ""))
	server.PutNode(ownNode)
	pod, err := client.Pod(t.Context(), capture.PodRef{Namespace: "shop", Name: "web", UID: "another"})
	if err != nil || pod.UID != "uid-of-web" {
		t.Errorf("read %v, %v", pod, err)
	}
	node, err := client.Node(t.Context(), ownNode, "0")
	if err != nil || node.UID != "uid-of-node1" {
		t.Errorf("read %v, %v", node, err)
	}
	created, err := client.CreateLease(t.Context(), &lease1)
	if err != nil || created.ResourceVersion != "1" {
		t.Errorf("created %v, %v", created, err)
	}
	updated, err := client.UpdateLease(t.Context(), created)
	if err != nil || updated.ResourceVersion != "2" {
		t.Errorf("updated %v, %v", updated, err)
	}
	if lease, err := client.Lease(t.Context(), "mesh", "node-1"); err != nil || *lease.Spec.HolderIdentity != "agent" {
		t.Errorf("read %v, %v", lease, err)
	}
}

// TestRemoveTaint reads a Node again if its taints have changed, and gives up if they
// change again and again.
func TestRemoveTaint(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		node            *corev1.Node
		patches         []int // statuses of the answers; the last one is repeated
		read            int   // status of the answer to a read
		requests, fault string
	}{
		"no such taint":        {tainted("other"), nil, 200, "", ""},
		"removed":              {tainted("late"), []int{200}, 200, "PATCH ", ""},
		"changed":              {tainted("late"), []int{422, 200}, 200, "PATCH GET PATCH ", ""},
		"in conflict":          {tainted("late"), []int{409, 409, 200}, 200, "PATCH GET PATCH GET PATCH ", ""},
		"changed each time":    {tainted("late"), []int{422}, 200, "PATCH GET PATCH GET PATCH GET PATCH GET PATCH ", "removing taint late from node node1: no"},
		"forbidden":            {tainted("late"), []int{403}, 200, "PATCH ", "removing taint late from node node1: no"},
		"changed, and deleted": {tainted("late"), []int{422}, 404, "PATCH GET ", "reading node node1: no"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := startServer(t)
			server.PutNode(ownNode, corev1.Taint{Key: "late"})
			requests, patches := "", 0
			server.Misbehave(func(w http.ResponseWriter, r *http.Request) bool {
				requests += r.Method + " "
				code := tt.read
				if r.Method == http.MethodPatch {
					code = tt.patches[min(patches, len(tt.patches)-1)]
					patches++
				}
				if code == http.StatusOK {
					return false
				}
				reason := map[int]metav1.StatusReason{422: metav1.StatusReasonInvalid, 409: metav1.StatusReasonConflict, 403: metav1.StatusReasonForbidden, 404: metav1.StatusReasonNotFound}[code]
				kubeapi.WriteStatus(w, r, code, reason, "no")
				return true
			})
			got := ""
			if err := clientFor(t, server).RemoveTaint(t.Context(), tt.node, "late"); err != nil {
				got = err.Error()
			}
			if requests != tt.requests || got != tt.fault {
				t.Errorf("%s: %q, want %s: %q", requests, got, tt.requests, tt.fault)
			}
			if taints := server.Taints(ownNode); (len(taints) == 0) != (tt.patches != nil && tt.fault == "") {
				t.Errorf("the Node has %v", taints)
			}
		})
	}
}

// TestNoClient returns the error for authorities that can't be read.
func TestNoClient(t *testing.T) {
	t.Parallel()
	client, err := New(&rest.Config{Host: "https://api", TLSClientConfig: rest.TLSClientConfig{CAFile: "/nonexistent"}})
	if client != nil || err == nil || !strings.HasPrefix(err.Error(), "making an API client: ") {
		t.Errorf("%v, %v", client, err)
	}
}
