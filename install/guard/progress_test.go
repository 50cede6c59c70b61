// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

const lastRound = "capture_cni_guard_last_round_timestamp_seconds"

// TestStuck has an examination that never ends: the metric keeps the time of the last
// whole round, and the guard is stuck after five rounds, and five minutes at least.
func TestStuck(t *testing.T) {
	t.Parallel()
	for round, limit := range map[time.Duration]time.Duration{30 * time.Second: 5 * time.Minute, 2 * time.Minute: 10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			s := newShakyGuard()
			s.settings.Round = round
			if err := s.Stuck(); err != nil {
				t.Errorf("at the start: %v", err)
			}
			s.set(running("a"))
			s.Round(t.Context())
			whole := time.Now()

			end := make(chan struct{})
			s.asker.pods = &agent{answer: func(context.Context) (lookup.Answer, error) {
				<-end
				return lookup.Answer{}, context.Canceled
			}}
			stuck := meshedSandbox("b")
			stuck.Namespace = "shop"
			s.set(func(context.Context) ([]cri.Sandbox, error) { return []cri.Sandbox{stuck}, nil })
			var done sync.WaitGroup
			done.Go(func() { s.Round(t.Context()) })
			time.Sleep(limit)
			if err := s.Stuck(); err != nil {
				t.Errorf("after %s: %v", limit, err)
			}
			time.Sleep(time.Second)
			if err := s.Stuck(); err == nil || !strings.Contains(err.Error(), limit.String()) {
				t.Errorf("a second later: %v", err)
			}
			if got := s.gauge(t, lastRound); got != seconds(whole) {
				t.Errorf("the last whole round was at %f, want %f", got, seconds(whole))
			}
			close(end)
			done.Wait()
			if err := s.Stuck(); err != nil || s.gauge(t, lastRound) != seconds(time.Now()) {
				t.Errorf("after the examination: %v, %f", err, s.gauge(t, lastRound))
			}
		})
	}
}

// TestLastRound is the time since which the first pod has waited, for a guard that has
// more to examine than it can.
func TestLastRound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShakyGuard()
		const pods = 4
		s.asker.pods = &agent{answer: func(ctx context.Context) (lookup.Answer, error) {
			sleep(ctx, roundBudget*3/4)
			return lookup.Answer{}, &lookup.Fault{Kind: lookup.Failed}
		}}
		s.set(func(context.Context) (list []cri.Sandbox, err error) {
			for i := range pods {
				list = append(list, meshedSandbox(fmt.Sprint(i)))
				list[i].Namespace = "shop"
			}
			return list, nil
		})
		listed := time.Now()
		for round, whole := range []bool{false, true} { // two examinations fit
			if complete := s.Round(t.Context()); complete != whole {
				t.Fatalf("round %d: complete %v", round, complete)
			}
			want := listed
			if whole {
				want = time.Now()
			}
			if got := s.gauge(t, lastRound); got != seconds(want) {
				t.Errorf("round %d: %f, want %f", round, got, seconds(want))
			}
		}
	})
}
