// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/install/kube"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
	"github.com/capture-cni/capture-cni/plugin/podfields"
)

const ownNode = "node1"

// world is an agent that serves requests of pods, and its API server.
type world struct {
	*Server
	api      *kubeapi.Server
	registry *prometheus.Registry
	socket   string
	ended    chan error
	end      context.CancelFunc
}

// newWorld starts a server that watches the pods of ownNode.
func newWorld(t *testing.T, api *kubeapi.Server) *world {
	t.Helper()
	return startAgent(t, api, ownNode)
}

func startAgent(t *testing.T, api *kubeapi.Server, node string) *world {
	t.Helper()
	client, err := kube.New(&rest.Config{Host: api.URL, BearerToken: api.Token(), TLSClientConfig: rest.TLSClientConfig{CAData: api.Cert.PEM}})
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "pods") // the test's own is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	w := &world{api: api, registry: prometheus.NewRegistry(), socket: filepath.Join(dir, "sockets", "pods.sock"), ended: make(chan error, 1)}
	w.Server = New(Settings{Socket: w.socket, Node: node, Meshes: config.Meshes()}, client, w.registry, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	w.end = cancel
	go func() { w.ended <- w.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-w.ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Error("the server did not end")
		}
		_ = os.RemoveAll(dir)
	})
	poll(t, "the socket", func() bool {
		_, err := os.Lstat(w.socket)
		return err == nil
	})
	return w
}

func startAPI(t *testing.T, options ...kubeapi.Option) *kubeapi.Server {
	t.Helper()
	api, err := kubeapi.Start(options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	return api
}

func poll(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for until := time.Now().Add(30 * time.Second); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("waiting for %s took too long", what)
		}
	}
}

func (w *world) waitReady(t *testing.T) {
	t.Helper()
	poll(t, "the node's pods", func() bool { return w.Ready() == nil })
}

// dial connects to the socket, and waits until the connection is accepted.
func (w *world) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", w.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	var first [1]byte
	if _, err := conn.Read(first[:]); err != nil || first[0] != lookup.Accepted {
		t.Fatalf("the first byte is %#x, %v", first[0], err)
	}
	return conn
}

// ask sends a request of this version.
func (w *world) ask(t *testing.T, request lookup.Request) (lookup.Answer, error) {
	t.Helper()
	request.Version = capture.PodVersion
	conn := w.dial(t)
	document, err := json.Marshal(request)
	if err == nil {
		err = lookup.WriteMessage(conn, document)
	}
	if err != nil {
		t.Fatal(err)
	}
	received, err := lookup.ReadMessage(conn, lookup.MaxAnswer)
	if err != nil {
		t.Fatal(err)
	}
	return lookup.ParseAnswer(received, request)
}

// askFor asks for a pod without a digest.
func (w *world) askFor(t *testing.T, ref capture.PodRef) (lookup.Answer, error) {
	t.Helper()
	return w.ask(t, lookup.Request{Pod: ref})
}

// count returns a metric's value.
func (w *world) count(t *testing.T, metric, label string) int {
	t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == "capture_cni_"+metric && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return int(m.GetCounter().GetValue() + m.GetGauge().GetValue())
			}
		}
	}
	t.Fatalf("no metric %s of %q", metric, label)
	return 0
}

func podOn(node, name, uid string, annotations ...string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID(uid), Annotations: map[string]string{"sidecar.istio.io/status": "{}"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", Controller: new(true)}},
		},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "istio-proxy", Args: []string{"proxy", "sidecar"}}}},
	}
	for i := 0; i < len(annotations); i += 2 {
		pod.Annotations[annotations[i]] = annotations[i+1]
	}
	return pod
}

func ref(name, uid string) capture.PodRef {
	return capture.PodRef{Namespace: "shop", Name: name, UID: uid}
}

const excludedPorts = "traffic.sidecar.istio.io/excludeOutboundPorts"

// TestWatchedPods asks for pods of the node while they change. None of the answers
// needs a request to the API server.
func TestWatchedPods(t *testing.T) {
	t.Parallel()
	api := startAPI(t)
	pod := podOn(ownNode, "web", "u1")
	api.Put(pod)
	w := newWorld(t, api)
	w.waitReady(t)
	if _, err := w.ask(t, lookup.Request{}); err != nil {
		t.Errorf("ping: %v", err)
	}
	answer, err := w.askFor(t, ref("web", "u1"))
	fields := podfields.Of(pod)
	want := lookup.Answer{Version: capture.PodVersion, UID: "u1", HasController: true, Pod: &fields, Digest: answer.Digest}
	if err != nil || len(answer.Digest) != 32 || !reflect.DeepEqual(answer, want) {
		t.Fatalf("got %+v, %v, want %+v", answer, err, want)
	}
	again, err := w.ask(t, lookup.Request{Pod: ref("web", "u1"), Digest: answer.Digest})
	if err != nil || !reflect.DeepEqual(again, lookup.Answer{Version: capture.PodVersion, Unchanged: true}) {
		t.Errorf("got %+v, %v", again, err)
	}
	api.Put(podOn(ownNode, "web", "u1", excludedPorts, "80"))
	poll(t, "the edited annotation", func() bool {
		edited, err := w.ask(t, lookup.Request{Pod: ref("web", "u1"), Digest: answer.Digest})
		if err == nil && !edited.Unchanged && (edited.Pod.Annotations[excludedPorts] != "80" || edited.Digest == answer.Digest) {
			t.Errorf("got %+v", edited)
		}
		return err == nil && !edited.Unchanged
	})
	api.Put(podOn(ownNode, "more", "u9"))
	poll(t, "two pods", func() bool { return w.count(t, "pods_watched", "") == 2 })
	injected := func() string {
		answer, err := w.ask(t, lookup.Request{Injected: true})
		slices.Sort(answer.Injected)
		return fmt.Sprint(answer.Injected, err)
	}
	if got := injected(); got != "[u1 u9] <nil>" {
		t.Errorf("injected: %s", got)
	}
	api.Put(podOn(ownNode, "more", "u9", "sidecar.istio.io/inject", "false"))
	poll(t, "the exempt pod's end in the list", func() bool { return injected() == "[u1] <nil>" })
	if reads := api.RequestsOf(kubeapi.GetPod); reads != 0 {
		t.Errorf("%d reads, want none", reads)
	}
	if w.count(t, "pods_synced", "") != 1 || w.count(t, "pod_requests_total", sourceWatch) != 2 || w.count(t, "pod_requests_total", sourceUnchanged) < 1 {
		t.Error("the metrics differ")
	}
	api.Delete("shop", "web")
	poll(t, "the pod's end", func() bool { return w.count(t, "pods_watched", "") == 1 })
	_, err = w.askFor(t, ref("web", "u1"))
	if !lookup.IsGone(err) || err.Error() != "the API server has no pod shop/web" {
		t.Errorf("got %v", err)
	}
}

// TestUIDs asks for an earlier and a later pod of the same name.
func TestUIDs(t *testing.T) {
	t.Parallel()
	api := startAPI(t)
	api.Put(podOn(ownNode, "web", "u1"))
	w := newWorld(t, api)
	w.waitReady(t)
	api.Misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/api/v1/pods" {
			return false
		}
		kubeapi.WriteStatus(w, r, http.StatusNotFound, metav1.StatusReasonNotFound, "no such pod")
		return true
	})
	api.Delete("shop", "web")
	api.Put(podOn(ownNode, "web", "u2"))
	poll(t, "the new pod", func() bool {
		answer, err := w.askFor(t, ref("web", "u2"))
		return err == nil && answer.UID == "u2"
	})
	api.Misbehave(nil)
	before := api.RequestsOf(kubeapi.GetPod)
	_, err := w.askFor(t, ref("web", "u1"))
	if !lookup.IsGone(err) || err.Error() != "the pod on the API server has UID u2, expected u1" {
		t.Errorf("got %v", err)
	}
	if reads := api.RequestsOf(kubeapi.GetPod) - before; reads != 1 {
		t.Errorf("%d reads, want 1: the cache could be late", reads)
	}
}

// TestReads asks for pods that are not answered from the cache: each answer takes a
// read of its own.
func TestReads(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		node string
		pod  *corev1.Pod
		uid  string
	}{
		"another node":      {ownNode, podOn("node2", "web", "u1"), "u1"},
		"no UID":            {ownNode, podOn(ownNode, "web", "u1"), ""},
		"no node is known":  {"", podOn(ownNode, "web", "u1"), "u1"},
		"compressed answer": {"", podOn(ownNode, "web", "u1", excludedPorts, strings.Repeat("80,", 10<<10)), "u1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := startAPI(t)
			api.Put(c.pod)
			w := startAgent(t, api, c.node)
			w.waitReady(t)
			for i := range 3 {
				answer, err := w.askFor(t, ref("web", c.uid))
				if err != nil || answer.UID != "u1" || !reflect.DeepEqual(*answer.Pod, podfields.Of(c.pod)) {
					t.Errorf("got %+v, %v", answer, err)
				}
				if reads := api.RequestsOf(kubeapi.GetPod); reads != i+1 {
					t.Errorf("%d reads after %d requests", reads, i+1)
				}
			}
			unchanged, err := w.ask(t, lookup.Request{Pod: ref("web", c.uid), Digest: digestOf(t, c.pod)})
			if err != nil || !unchanged.Unchanged {
				t.Errorf("got %+v, %v", unchanged, err)
			}
			if lists := api.RequestsOf(kubeapi.StreamPods); (lists > 0) != (c.node != "") {
				t.Errorf("%d lists", lists)
			}
		})
	}
}

// TestOtherNodesPods reads a pod of another node, or of none yet, only for a request with its
// UID, which no answer names.
func TestOtherNodesPods(t *testing.T) {
	t.Parallel()
	api := startAPI(t)
	for name, node := range map[string]string{"own": ownNode, "other": "node2", "unscheduled": ""} {
		api.Put(podOn(node, name, "u1"))
	}
	w := newWorld(t, api)
	w.waitReady(t)
	for pod, watched := range map[capture.PodRef]bool{ref("own", "u1"): true, ref("own", "u2"): false, ref("own", ""): false, ref("other", "u1"): false} {
		if w.Watches(pod) != watched || (*Server)(nil).Watches(pod) {
			t.Errorf("%v is watched: %v", pod, !watched)
		}
	}
	for _, name := range []string{"own", "other", "unscheduled"} {
		if answer, err := w.askFor(t, ref(name, "u1")); err != nil || answer.Pod == nil {
			t.Errorf("%s by its UID: %+v, %v", name, answer, err)
		}
		answer, err := w.askFor(t, ref(name, "u2"))
		if !isGone(err) || answer.Pod != nil || name != "own" && strings.Contains(err.Error(), "u1") {
			t.Errorf("%s by another UID: %+v, %v", name, answer, err)
		}
		answer, err = w.askFor(t, ref(name, ""))
		if name == "own" && (err != nil || answer.Pod == nil) || name != "own" && (!isGone(err) || answer.Pod != nil || !strings.Contains(err.Error(), "not a pod of node node1")) {
			t.Errorf("%s by its name: %+v, %v", name, answer, err)
		}
	}
}

func isGone(err error) bool {
	fault, ok := errors.AsType[*lookup.Fault](err)
	return ok && fault.Kind == lookup.Gone
}

func digestOf(t *testing.T, pod *corev1.Pod) string {
	t.Helper()
	e, err := newEntry(pod, config.Meshes())
	if err != nil {
		t.Fatal(err)
	}
	return e.digest
}

// TestAPIAway begins without an API server, which comes later and ends again.
func TestAPIAway(t *testing.T) {
	t.Parallel()
	const unread = "the agent has not read its node's pods yet: "
	api := startAPI(t)
	api.Put(podOn(ownNode, "web", "u1"))
	away := func(w http.ResponseWriter, r *http.Request) bool {
		kubeapi.WriteStatus(w, r, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "starting")
		return true
	}
	api.Misbehave(away)
	w := newWorld(t, api)
	poll(t, "the cause", func() bool {
		err := w.Ready()
		return err != nil && strings.HasPrefix(err.Error(), unread) && strings.Contains(err.Error(), "starting")
	})
	for _, request := range []lookup.Request{{}, {Pod: ref("web", "u1")}, {Pod: ref("web", "")}} {
		_, err := w.ask(t, request)
		fault, ok := errors.AsType[*lookup.Fault](err)
		if !ok || fault.Kind != lookup.Failed || !strings.HasPrefix(fault.Message, unread) {
			t.Errorf("%+v: got %v", request, err)
		}
	}
	api.Misbehave(func(w http.ResponseWriter, r *http.Request) bool { return r.URL.Path == "/api/v1/pods" && away(w, r) })
	if answer, err := w.askFor(t, ref("web", "u1")); err != nil || answer.UID != "u1" || w.Ready() == nil {
		t.Errorf("got %+v, %v, ready: %v", answer, err, w.Ready())
	}
	if _, err := w.askFor(t, ref("other", "u1")); !lookup.IsGone(err) || strings.HasPrefix(err.Error(), unread) {
		t.Errorf("got %v", err)
	}
	if w.count(t, "pods_synced", "") != 0 {
		t.Error("the metric says that the pods were read")
	}
	api.Misbehave(nil)
	w.waitReady(t)
	if err := api.Close(); err != nil {
		t.Fatal(err)
	}
	if answer, err := w.askFor(t, ref("web", "u1")); err != nil || answer.UID != "u1" {
		t.Errorf("got %+v, %v", answer, err)
	}
	_, err := w.askFor(t, ref("new", "u2"))
	if fault, ok := errors.AsType[*lookup.Fault](err); !ok || fault.Kind != lookup.Failed || strings.HasPrefix(fault.Message, unread) {
		t.Errorf("got %v", err)
	}
	poll(t, "the broken watch", func() bool {
		w.cache.mu.RLock()
		defer w.cache.mu.RUnlock()
		return w.cache.failure != nil && !w.cache.broken.IsZero()
	})
	if err := w.Ready(); err != nil {
		t.Errorf("not ready: %v", err)
	}
}

// TestListRunning asks while the API server has not answered the first list.
func TestListRunning(t *testing.T) {
	t.Parallel()
	api := startAPI(t)
	api.Put(podOn(ownNode, "web", "u1"))
	release := make(chan struct{})
	api.Misbehave(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/api/v1/pods" {
			<-release
		}
		return false
	})
	w := newWorld(t, api)
	poll(t, "the list", func() bool { return api.RequestsOf(kubeapi.StreamPods) == 1 })
	if answer, err := w.askFor(t, ref("web", "u1")); err != nil || answer.UID != "u1" {
		t.Errorf("got %+v, %v", answer, err)
	}
	if err := w.Ready(); err == nil || err.Error() != "the agent has not read its node's pods yet: the API server has not answered so far" {
		t.Errorf("got %v", err)
	}
	close(release)
	w.waitReady(t)
}

// TestEntriesAreSmall expects little memory for a pod, however large its annotations
// and other fields are.
func TestEntriesAreSmall(t *testing.T) {
	t.Parallel()
	pod := podOn(ownNode, "web", "u1", excludedPorts, strings.Repeat("80,", 80<<10), "example.com/other", strings.Repeat("x", 1<<20))
	e, err := newEntry(pod, config.Meshes())
	if err != nil || len(e.document) > compressFrom || cap(e.document) > compressFrom {
		t.Fatalf("%d bytes, %v", len(e.document), err)
	}
	document, err := e.answer()
	if err != nil || !bytes.Contains(document, []byte(pod.Annotations[excludedPorts])) || len(document) != e.size {
		t.Errorf("%d bytes, %v", len(document), err)
	}
	pod.Annotations[excludedPorts] = strings.Repeat("\x01", lookup.MaxAnswer/6+1)
	if _, err := newEntry(pod, config.Meshes()); err == nil || !strings.Contains(err.Error(), "expected at most") {
		t.Errorf("got %v", err)
	}
}

// TestCacheLosesWhatItCannotKeep expects no older answer for a pod that has become
// too large.
func TestCacheLosesWhatItCannotKeep(t *testing.T) {
	t.Parallel()
	cache := newTestCache()
	if err := cache.Add(podOn(ownNode, "web", "u1")); err != nil {
		t.Fatal(err)
	}
	large := podOn(ownNode, "web", "u1", excludedPorts, strings.Repeat("\x01", lookup.MaxAnswer))
	if err := cache.Update(large); err == nil {
		t.Error("no error")
	}
	if _, ok := cache.find("shop/web", "u1"); ok {
		t.Error("the earlier answer is still there")
	}
	if err := cache.Replace([]any{large, podOn(ownNode, "b", "u2")}, "1"); err != nil || len(cache.entries) != 1 || cache.unready() != nil {
		t.Errorf("%d entries, %v, %v", len(cache.entries), err, cache.unready())
	}
	for _, err := range []error{cache.Add("text"), cache.Delete("text")} {
		if err == nil || !strings.Contains(fmt.Sprint(err), "string") {
			t.Errorf("got %v", err)
		}
	}
}

// TestEndedPods lists the node's pods again, after a watch that was broken while pods ended
// and one was replaced: none of them is known any more, injected ones included.
func TestEndedPods(t *testing.T) {
	t.Parallel()
	cache := newTestCache()
	ended, replaced, stays := podOn(ownNode, "ended", "u1"), podOn(ownNode, "web", "u2"), podOn(ownNode, "stays", "u3")
	for _, pods := range [][]any{{ended, replaced, stays}, {podOn(ownNode, "web", "u4"), stays}} {
		if err := cache.Replace(pods, "1"); err != nil {
			t.Fatal(err)
		}
	}
	for _, pod := range []struct {
		name, uid string
		known     bool
	}{{"ended", "u1", false}, {"web", "u2", false}, {"web", "u4", true}, {"stays", "u3", true}} {
		if _, known := cache.find("shop/"+pod.name, pod.uid); known != pod.known {
			t.Errorf("pod %s with UID %s is known: %t", pod.name, pod.uid, known)
		}
	}
	if uids := cache.injected(); len(uids) != 2 || slices.Contains(uids, "u1") || slices.Contains(uids, "u2") {
		t.Errorf("the injected pods are %q", uids)
	}
}
