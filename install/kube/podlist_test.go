// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
)

// TestLargeList reads the pods of a node where the API server does not stream lists, and
// they take more than one response may: page by page, in either encoding, and the watch
// goes on from there.
func TestLargeList(t *testing.T) {
	t.Parallel()
	const pods = 2*pageSize + 8
	for _, json := range []bool{true, false} {
		server := startServer(t)
		server.RefuseStreamingLists()
		for i := range pods {
			server.Put(podOn(ownNode, fmt.Sprintf("pod-%03d", i), strings.Repeat("x", 1200<<10)))
		}
		var mu sync.Mutex
		var lists []string
		server.Misbehave(func(_ http.ResponseWriter, r *http.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			if query := r.URL.Query(); query.Get("watch") == "" {
				lists = append(lists, fmt.Sprintf("limit %s, continue %q, version %q", query.Get("limit"), query.Get("continue"), query.Get("resourceVersion")))
			}
			if json {
				r.Header.Set("Accept", "application/json")
			}
			return false
		})
		store := watchPods(t, server)
		wait(t, "all pods", func() bool { store.mu.Lock(); defer store.mu.Unlock(); return len(store.texts) == pods })
		server.Put(podOn(ownNode, "later", "1"))
		wait(t, "the watch", func() bool { store.mu.Lock(); defer store.mu.Unlock(); return store.texts["shop/later"] == "1" })
		mu.Lock()
		want := []string{`limit 500, continue "", version "0"`, `limit 10, continue "", version ""`, `limit 10, continue "10", version ""`, `limit 10, continue "20", version ""`}
		if fmt.Sprint(lists) != fmt.Sprint(want) {
			t.Errorf("lists: %q, want %q", lists, want)
		}
		mu.Unlock()
		store.mu.Lock()
		if store.replaced != 1 || store.transformed < pods || store.failure != nil {
			t.Errorf("replaced %d times, %d pods transformed, %v", store.replaced, store.transformed, store.failure)
		}
		store.mu.Unlock()
	}
}

// TestTooManyPods keeps the first pods of a node that never ends, tells that, and watches. No limiter
// delays the pages, which would take 38 s with the client's default of 5 a second.
func TestTooManyPods(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	server.RefuseStreamingLists()
	for i := range maxListed + 2*pageSize {
		server.Put(podOn(ownNode, fmt.Sprintf("pod-%05d", i), "1"))
	}
	pages := 0
	server.Misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		query := r.URL.Query()
		if query.Get("watch") != "" {
			return false
		}
		if query.Get("limit") != fmt.Sprint(pageSize) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(make([]byte, maxList+1))
			return true
		}
		pages++
		return false
	})
	began, store := time.Now(), watchPods(t, server)
	wait(t, "the list", func() bool { store.mu.Lock(); defer store.mu.Unlock(); return store.replaced == 1 })
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the pages took %s", took)
	}
	server.Put(podOn(ownNode, "later", "1"))
	wait(t, "the watch", func() bool { store.mu.Lock(); defer store.mu.Unlock(); return store.texts["shop/later"] == "1" })
	store.mu.Lock()
	defer store.mu.Unlock()
	if len(store.texts) != maxListed+1 || pages != maxListed/pageSize {
		t.Errorf("%d pods of %d pages", len(store.texts), pages)
	}
	if store.failure == nil || !strings.Contains(store.failure.Error(), "more than 2000 pods name the node") {
		t.Errorf("told: %v", store.failure)
	}
}

// TestFailedPage keeps nothing of a list that ends with an error, and lists again.
func TestFailedPage(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	server.RefuseStreamingLists()
	for i := range 28 {
		server.Put(podOn(ownNode, fmt.Sprintf("pod-%03d", i), strings.Repeat("x", 1200<<10)))
	}
	failed := false
	server.Misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("continue") == "10" && !failed {
			failed = true
			kubeapi.WriteStatus(w, r, http.StatusGone, metav1.StatusReasonExpired, "the continue token has expired")
			return true
		}
		return false
	})
	store := watchPods(t, server)
	wait(t, "all pods", func() bool { store.mu.Lock(); defer store.mu.Unlock(); return len(store.texts) == 28 })
	store.mu.Lock()
	defer store.mu.Unlock()
	if store.replaced != 1 || !failed || store.failure == nil || store.failure.Error() != "listing the node's pods: the continue token has expired" {
		t.Errorf("replaced %d times, a page failed: %v, %v", store.replaced, failed, store.failure)
	}
}

// TestLargeLaterPage begins again with small pages where a later one of the large pages is
// too large: each pod is there once.
func TestLargeLaterPage(t *testing.T) {
	t.Parallel()
	const small, large = 500, 28
	server := startServer(t)
	server.RefuseStreamingLists()
	server.Misbehave(func(_ http.ResponseWriter, r *http.Request) bool {
		query := r.URL.Query()
		if query.Get("watch") == "" { // without a watch cache, the API server pages every list
			query.Set("resourceVersion", "")
			r.URL.RawQuery = query.Encode()
		}
		return false
	})
	for i := range small {
		server.Put(podOn(ownNode, fmt.Sprintf("a-%03d", i), "1"))
	}
	for i := range large {
		server.Put(podOn(ownNode, fmt.Sprintf("b-%03d", i), strings.Repeat("x", 1200<<10)))
	}
	store := watchPods(t, server)
	wait(t, "all pods", func() bool { store.mu.Lock(); defer store.mu.Unlock(); return len(store.texts) == small+large })
	store.mu.Lock()
	defer store.mu.Unlock()
	if store.replaced != 1 || store.failure != nil {
		t.Errorf("replaced %d times, %v", store.replaced, store.failure)
	}
}

// TestLargePage is ready without the pods of a page that is too large, and says so: they are
// read when they are asked for.
func TestLargePage(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	server.RefuseStreamingLists()
	var mu sync.Mutex
	lists := 0
	server.Misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("watch") != "" {
			return false
		}
		mu.Lock()
		defer mu.Unlock()
		lists++
		_, _ = w.Write(make([]byte, maxList+1))
		return true
	})
	store := watchPods(t, server)
	wait(t, "the list", func() bool { store.mu.Lock(); defer store.mu.Unlock(); return store.replaced == 1 })
	server.Put(podOn(ownNode, "later", "1"))
	wait(t, "the watch", func() bool { store.mu.Lock(); defer store.mu.Unlock(); return store.texts["shop/later"] == "1" })
	mu.Lock()
	defer mu.Unlock()
	store.mu.Lock()
	defer store.mu.Unlock()
	if lists != 2 || !strings.Contains(store.failure.Error(), "ten of them are too large") || !strings.Contains(store.failure.Error(), "larger than 32 MiB") {
		t.Errorf("after %d lists: %v", lists, store.failure)
	}
}

// TestUnkeepablePod leaves a pod out of a list, and says so.
func TestUnkeepablePod(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	server.RefuseStreamingLists()
	server.Put(podOn(ownNode, "a", "unkeepable"))
	server.Put(podOn(ownNode, "b", "1"))
	store := watchPods(t, server)
	store.wait(t, "shop/b=1", 1)
	store.mu.Lock()
	defer store.mu.Unlock()
	if store.failure == nil {
		t.Error("that a pod is not kept is not told")
	}
}
