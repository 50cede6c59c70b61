// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

const ownNode = "node1"

// names is a PodStore that keeps of each pod its name and an annotation.
type names struct {
	mu          sync.Mutex
	texts       map[string]string
	transformed int
	replaced    int // how often; a resumed watch replaces nothing
	started     int
	failure     error
}

type named struct{ key, text string }

func (named) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

func (n named) DeepCopyObject() runtime.Object { return n }

func (n *names) Transform(object any) (runtime.Object, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.transformed++
	if textOf(object).text == "unkeepable" {
		return nil, errors.New("it can't be kept")
	}
	return textOf(object), nil
}

func textOf(object any) named {
	if pod, ok := object.(*corev1.Pod); ok {
		return named{pod.Namespace + "/" + pod.Name, pod.Annotations["text"]}
	}
	return object.(named)
}

func (n *names) Add(object any) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.texts[textOf(object).key] = textOf(object).text
	return nil
}

func (n *names) Update(object any) error { return n.Add(object) }

func (n *names) Delete(object any) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.texts, textOf(object).key)
	return nil
}

func (n *names) Replace(objects []any, _ string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.replaced++
	n.texts = map[string]string{}
	for _, object := range objects {
		n.texts[textOf(object).key] = textOf(object).text
	}
	return nil
}

func (n *names) Resync() error { return nil }

func (n *names) WatchStarted() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.started++
}

func (n *names) WatchFailed(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.failure = err
}

// state returns all pods and their texts, and how often the store was replaced.
func (n *names) state() (string, int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []string
	for _, key := range slices.Sorted(maps.Keys(n.texts)) {
		all = append(all, key+"="+n.texts[key])
	}
	return strings.Join(all, " "), n.replaced
}

// patience is how long tests wait, on a busy machine, for what takes a second at most.
const patience = time.Minute

// wait polls until a condition is true.
func wait(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for until := time.Now().Add(patience); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("waiting for %s took too long", what)
		}
	}
}

func (n *names) wait(t *testing.T, want string, replaced int) {
	t.Helper()
	for until := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		got, times := n.state()
		if got == want && times == replaced {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("the store has %q and was replaced %d times, want %q and %d", got, times, want, replaced)
		}
	}
}

func podOn(node, name, text string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-of-" + name), Annotations: map[string]string{"text": text}},
		Spec:       corev1.PodSpec{NodeName: node},
	}
}

// watchPods watches the pods of ownNode until the test ends.
func watchPods(t *testing.T, server *kubeapi.Server) *names {
	t.Helper()
	access := accessTo(server)
	access.Timeout = 100 * time.Millisecond
	client, err := New(access)
	lab.Check(t, err)
	store := &names{texts: map[string]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { client.WatchNodePods(ctx, ownNode, store) })
	t.Cleanup(func() { cancel(); watching.Wait() })
	return store
}

func startServer(t *testing.T) *kubeapi.Server {
	t.Helper()
	server, err := kubeapi.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return server
}

// TestWatchNodePods follows a node's pods by a streaming list, and by a list where
// the API server refuses to stream, in both encodings.
func TestWatchNodePods(t *testing.T) {
	t.Parallel()
	for _, streaming := range []bool{true, false} {
		for _, json := range []bool{true, false} {
			t.Run(fmt.Sprintf("streaming %v, JSON %v", streaming, json), func(t *testing.T) {
				t.Parallel()
				server := startServer(t)
				if !streaming {
					server.RefuseStreamingLists()
				}
				var mu sync.Mutex
				var accepts []string
				server.Misbehave(func(_ http.ResponseWriter, r *http.Request) bool {
					mu.Lock()
					defer mu.Unlock()
					accepts = append(accepts, r.Header.Get("Accept"))
					if got := r.URL.Query().Get("fieldSelector"); got != "spec.nodeName="+ownNode {
						t.Errorf("%s has the selector %q", r.URL, got)
					}
					if json {
						r.Header.Set("Accept", "application/json")
					}
					return false
				})
				server.Put(podOn(ownNode, "a", "1"))
				server.Put(podOn("node2", "other", "1"))
				store := watchPods(t, server)
				store.wait(t, "shop/a=1", 1)
				server.Put(podOn(ownNode, "b", "1"))
				server.Put(podOn(ownNode, "a", "2"))
				server.Put(podOn("node2", "other", "2"))
				store.wait(t, "shop/a=2 shop/b=1", 1)
				server.Delete("shop", "a")
				store.wait(t, "shop/b=1", 1)
				lists, streams := server.RequestsOf(kubeapi.ListPods), server.RequestsOf(kubeapi.StreamPods)
				if lists != map[bool]int{true: 0, false: 1}[streaming] || streams != 1 {
					t.Errorf("%d lists and %d streaming lists", lists, streams)
				}
				mu.Lock()
				defer mu.Unlock()
				for _, accept := range accepts {
					if !strings.HasPrefix(accept, "application/vnd.kubernetes.protobuf") || !strings.Contains(accept, "application/json") {
						t.Errorf("a request accepts %q", accept)
					}
				}
				store.mu.Lock()
				defer store.mu.Unlock()
				if streaming && store.transformed != 1 || store.failure != nil {
					t.Errorf("%d pods of the stream were transformed, %v", store.transformed, store.failure)
				}
			})
		}
	}
}

// TestWatchResumes breaks the watch: the next one begins where it ended, and nothing
// is listed again.
func TestWatchResumes(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	server.Put(podOn(ownNode, "a", "1"))
	store := watchPods(t, server)
	store.wait(t, "shop/a=1", 1)
	for i := range 2 {
		server.Put(podOn(ownNode, "b", fmt.Sprint(i)))
		store.wait(t, fmt.Sprintf("shop/a=%d shop/b=%d", i+1, i), 1)
		server.BreakWatches()
		server.Put(podOn(ownNode, "a", fmt.Sprint(i+2))) // before the next watch begins, or after it
		store.wait(t, fmt.Sprintf("shop/a=%d shop/b=%d", i+2, i), 1)
	}
	if lists := server.RequestsOf(kubeapi.ListPods) + server.RequestsOf(kubeapi.StreamPods); lists != 1 {
		t.Errorf("%d lists, want 1", lists)
	}
}

// TestBookmark resumes at a bookmark's version where the last pod's has expired.
func TestBookmark(t *testing.T) {
	t.Parallel()
	for _, bookmark := range []bool{true, false} {
		t.Run(fmt.Sprint(bookmark), func(t *testing.T) {
			t.Parallel()
			server := startServer(t)
			server.Put(podOn(ownNode, "a", "1"))
			store := watchPods(t, server)
			store.wait(t, "shop/a=1", 1)
			server.Put(podOn(ownNode, "a", "changed")) // a watch without events is not resumed
			store.wait(t, "shop/a=changed", 1)
			server.Expire()
			if bookmark {
				server.Bookmark()
			}
			server.EndWatches()
			wait(t, "the next watch", func() bool { return server.RequestsOf(kubeapi.WatchPods) == 1 })
			server.Put(podOn(ownNode, "a", "2"))
			store.wait(t, "shop/a=2", map[bool]int{true: 1, false: 2}[bookmark])
		})
	}
}

// TestExpiredVersion lists again where the version to resume at has expired.
func TestExpiredVersion(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	server.Put(podOn(ownNode, "a", "1"))
	server.Put(podOn(ownNode, "b", "1"))
	store := watchPods(t, server)
	store.wait(t, "shop/a=1 shop/b=1", 1)
	server.Misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		kubeapi.WriteStatus(w, r, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "starting")
		return true
	})
	server.BreakWatches()
	wait(t, "the error", func() bool {
		store.mu.Lock()
		defer store.mu.Unlock()
		return store.failure != nil
	})
	server.Delete("shop", "a")
	server.Expire()
	server.Misbehave(nil)
	store.wait(t, "shop/b=1", 2)
}
