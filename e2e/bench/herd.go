// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/install/kube"
)

// herdSize is how many agents' watches of pods an API server has.
const herdSize = 500

// herd measures what an API server is asked by the watches of many agents while it does not
// answer, and when it does again.
func (b *bench) herd(outages ...time.Duration) error {
	ctx, stop := context.WithCancel(b.ctx)
	defer stop()
	var watching atomic.Int64
	for i := range herdSize {
		access, err := clientcmd.BuildConfigFromFlags("", filepath.Join(b.credentials(), "kubeconfig"))
		if err != nil {
			return err
		}
		access.Dial = (&net.Dialer{}).DialContext // a connection of its own
		client, err := kube.New(access)
		if err != nil {
			return err
		}
		go client.WatchNodePods(ctx, fmt.Sprint("herd-", i), &herdStore{watching: &watching})
	}
	await := func() error {
		for watching.Load() < herdSize {
			if err := sleep(ctx, 10*time.Millisecond); err != nil {
				return err
			}
		}
		return nil
	}
	lines := []string{"OUTAGE\tREQUESTS A SECOND MEANWHILE\tGREATEST SECOND AFTER IT\tALL WATCH AGAIN AFTER s"}
	for _, outage := range outages {
		if err := await(); err != nil {
			return err
		}
		progress("an outage of %s, %d watches", outage, herdSize)
		var down, up seconds
		b.api.Misbehave(func(w http.ResponseWriter, r *http.Request) bool {
			down.count()
			kubeapi.WriteStatus(w, r, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "an outage")
			return true
		})
		watching.Store(0)
		b.api.BreakWatches()
		if err := sleep(ctx, outage); err != nil {
			return err
		}
		b.api.Misbehave(func(http.ResponseWriter, *http.Request) bool { up.count(); return false })
		back := time.Now()
		if err := await(); err != nil {
			return err
		}
		took := time.Since(back)
		b.api.Misbehave(nil)
		lines = append(lines, fmt.Sprintf("%s\t%.1f\t%d\t%.0f", outage, float64(down.sum())/outage.Seconds(), up.greatest(), took.Seconds()))
	}
	return b.Print(lines...)
}

// seconds counts requests by seconds.
type seconds struct {
	mu     sync.Mutex
	counts map[int64]int
}

func (s *seconds) count() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts == nil {
		s.counts = map[int64]int{}
	}
	s.counts[time.Now().Unix()]++
}

func (s *seconds) all() (counts []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.counts {
		counts = append(counts, n)
	}
	return append(counts, 0)
}

func (s *seconds) greatest() int { return slices.Max(s.all()) }

func (s *seconds) sum() (sum int) {
	for _, n := range s.all() {
		sum += n
	}
	return sum
}

// herdStore keeps nothing, and counts itself while it is up to date.
type herdStore struct{ watching *atomic.Int64 }

func (s *herdStore) Transform(pod any) (runtime.Object, error) { return pod.(runtime.Object), nil }
func (s *herdStore) Add(any) error                             { return nil }
func (s *herdStore) Update(any) error                          { return nil }
func (s *herdStore) Delete(any) error                          { return nil }
func (s *herdStore) Replace([]any, string) error               { return nil }
func (s *herdStore) Resync() error                             { return nil }
func (s *herdStore) WatchStarted()                             { s.watching.Add(1) }
func (s *herdStore) WatchFailed(error)                         {}
