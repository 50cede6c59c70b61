// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestWatchLasts watches for longer than the timeout of the client's requests, and
// reads more than one response may have.
func TestWatchLasts(t *testing.T) {
	t.Parallel()
	for _, streaming := range []bool{true, false} {
		server := startServer(t)
		if !streaming {
			server.RefuseStreamingLists()
		}
		large := strings.Repeat("x", 200<<10)
		for i := range 30 {
			server.Put(podOn(ownNode, fmt.Sprint(i), large))
		}
		store := watchPods(t, server) // with a time-out of 100 ms
		wait(t, "all pods", func() bool { store.mu.Lock(); defer store.mu.Unlock(); return len(store.texts) == 30 })
		wait(t, "the watch", func() bool { return streaming || server.RequestsOf(kubeapi.WatchPods) > 0 })
		time.Sleep(300 * time.Millisecond) // only time shows that no time-out ends the watch
		if lists, watches := server.RequestsOf(kubeapi.ListPods), server.RequestsOf(kubeapi.WatchPods); streaming && lists+watches != 0 || !streaming && (lists != 1 || watches != 1) {
			t.Errorf("streaming %v: %d lists and %d watches", streaming, lists, watches)
		}
	}
}

// TestReadsAreNotPaced reads as many pods as start at once: no limiter delays them.
func TestReadsAreNotPaced(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	server.Put(podOn(ownNode, "web", ""))
	client, err := New(accessTo(server))
	lab.Check(t, err)
	began := time.Now()
	for range 50 {
		if _, err := client.Pod(t.Context(), capture.PodRef{Namespace: "shop", Name: "web"}); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("50 reads took %s", took)
	}
}
