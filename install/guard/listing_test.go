// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/report"
)

// shaky is a Runtime whose answers a test makes. Its pods are exempt, so that an
// examination needs no network namespace.
type shaky struct {
	Runtime
	mu   sync.Mutex
	list func(ctx context.Context) ([]cri.Sandbox, error)
}

func (s *shaky) Listen(context.Context, func(), func()) error { return cri.ErrNoEvents }

func (s *shaky) Sandboxes(ctx context.Context) ([]cri.Sandbox, error) {
	s.mu.Lock()
	list := s.list
	s.mu.Unlock()
	return list(ctx)
}

func (s *shaky) set(list func(ctx context.Context) ([]cri.Sandbox, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = list
}

func meshedSandbox(id string) cri.Sandbox {
	return cri.Sandbox{ID: id, Namespace: "excluded", Name: id, NetNS: "/netns/" + id, Annotations: map[string]string{"sidecar.istio.io/status": "{}"}}
}

func running(ids ...string) func(context.Context) ([]cri.Sandbox, error) {
	return func(context.Context) (list []cri.Sandbox, err error) {
		for _, id := range ids {
			list = append(list, meshedSandbox(id))
		}
		return list, nil
	}
}

func hangingList(ctx context.Context) ([]cri.Sandbox, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func failingList(context.Context) ([]cri.Sandbox, error) {
	return nil, errors.New("connection refused")
}

// answerAfter hangs for a time.
func answerAfter(pause time.Duration, ids ...string) func(context.Context) ([]cri.Sandbox, error) {
	return func(ctx context.Context) ([]cri.Sandbox, error) {
		sleep(ctx, pause)
		return running(ids...)(ctx)
	}
}

// shakyGuard is a guard of such a runtime.
type shakyGuard struct {
	*Guard
	*shaky
	log      strings.Builder
	registry *prometheus.Registry
}

func newShakyGuard() *shakyGuard {
	s := &shakyGuard{shaky: &shaky{}, registry: prometheus.NewRegistry()}
	settings := Settings{Conf: config.Default(), Round: 30 * time.Second}
	settings.Conf.ExcludeNamespaces = []string{"excluded"}
	s.Guard = New(settings, s.shaky, &agent{answer: failing(errors.New("no agent"))}, slog.New(slog.NewTextHandler(&s.log, nil)), s.registry)
	return s
}

// gauge returns the value of a metric with these labels' values.
func (s *shakyGuard) gauge(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var values []string
			for _, label := range metric.GetLabel() {
				values = append(values, label.GetValue())
			}
			if family.GetName() == name && slices.Equal(values, labels) {
				return metric.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("there is no %s%q", name, labels)
	return 0
}

// expect wants this many pods in the metrics, the time of the last listing, and what
// was logged since the last call.
func (s *shakyGuard) expect(t *testing.T, when string, exempt int, listed time.Time, logged ...string) {
	t.Helper()
	if got := s.gauge(t, "capture_cni_pods", "istio", string(report.Exempt)); got != float64(exempt) {
		t.Errorf("%s: %v pods, want %d", when, got, exempt)
	}
	if got := s.gauge(t, "capture_cni_guard_last_listing_timestamp_seconds"); got != seconds(listed) {
		t.Errorf("%s: the last listing was at %f, want %f", when, got, seconds(listed))
	}
	lines := strings.Split(strings.TrimSpace(s.log.String()), "\n")
	s.log.Reset()
	var about []string
	for _, line := range lines {
		if strings.Contains(line, "listing the sandboxes failed") || strings.Contains(line, "answers again") {
			about = append(about, line)
		}
	}
	if len(about) != len(logged) {
		t.Errorf("%s: logged %q, want %q", when, about, logged)
		return
	}
	for i, want := range logged {
		if !strings.Contains(about[i], want) {
			t.Errorf("%s: logged %q, want %q", when, about[i], want)
		}
	}
}

// TestRuntimeAway keeps the pods that are known while the runtime does not list them,
// and removes those that ended meanwhile once it does. The log says it once.
func TestRuntimeAway(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(context.Context) ([]cri.Sandbox, error){"fails": failingList, "hangs": hangingList} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newShakyGuard()
				s.set(away)
				ctx, cancel := context.WithCancel(t.Context())
				s.Round(ctx)
				s.expect(t, "before the first listing", 0, time.Time{}, "listing the sandboxes failed")
				cancel()
				synctest.Wait()

				s = newShakyGuard()
				s.set(running("a", "b"))
				s.Round(t.Context())
				listed := time.Now()
				s.expect(t, "at first", 2, listed)

				s.set(away)
				ctx, cancel = context.WithCancel(t.Context())
				for range 3 {
					time.Sleep(pollInterval)
					s.Round(ctx)
				}
				s.expect(t, name, 2, listed, "listing the sandboxes failed")

				s.set(running("b", "c"))
				cancel() // of the listing that hangs
				synctest.Wait()
				s.Round(t.Context())
				s.Round(t.Context())
				s.expect(t, "again", 2, time.Now(), "answers again")
				if s.watched["a"] != nil || s.watched["c"] == nil {
					t.Errorf("it watches %v", s.watched)
				}
			})
		})
	}
}

// TestHangingRuntime examines known pods in time while the runtime does not answer, in
// whole rounds, and takes its answer as soon as it comes.
func TestHangingRuntime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShakyGuard()
		s.set(running("a", "b"))
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		done.Go(func() { s.Run(ctx) })
		time.Sleep(10 * time.Second)
		synctest.Wait()

		const hang = time.Hour + pollInterval/2
		s.set(answerAfter(hang, "a", "b", "c"))
		time.Sleep(hang - time.Second)
		synctest.Wait()
		for id, w := range s.watched {
			if wait := time.Until(w.next); wait < -pollInterval {
				t.Errorf("%s is due since %s", id, -wait)
			}
		}
		if age := time.Since(*s.progress.last.Load()); age > 2*pollInterval || s.Stuck() != nil {
			t.Errorf("the last whole round was %s ago: %v", age, s.Stuck())
		}
		s.set(running("a", "b", "c"))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if s.watched["c"] == nil || s.watched["c"].finding.Code != report.Exempt {
			t.Errorf("it watches %v", s.watched)
		}
		cancel()
		done.Wait()
	})
}

// TestSlowListing waits for a listing once, and takes it in a later round.
func TestSlowListing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newShakyGuard()
		s.set(answerAfter(2*time.Second+pollInterval/4, "a"))
		for round, want := range []struct {
			took time.Duration
			pods int
		}{{listingWait, 0}, {0, 0}, {0, 0}, {0, 1}} {
			began := time.Now()
			s.Round(t.Context())
			if took := time.Since(began); took != want.took || len(s.watched) != want.pods {
				t.Errorf("round %d took %s, of %d pods; want %s and %d", round, took, len(s.watched), want.took, want.pods)
			}
			time.Sleep(pollInterval / 2)
		}
	})
}

// TestUnlocatedSandbox watches a pod whose place is not known, and says why, until the
// runtime reports its place.
func TestUnlocatedSandbox(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		netns string
		want  report.Code
	}{"a namespace of its own": {"/netns/web", report.Unknown}, "the node's network": {"", ""}} {
		synctest.Test(t, func(t *testing.T) {
			s := newShakyGuard()
			sandbox := meshedSandbox("web")
			sandbox.Namespace, sandbox.NetNS, sandbox.NetworkError = "shop", "", errors.New("the shim is stuck")
			s.asker.pods = &agent{answer: failing(errors.New("the agent is asked"))}
			s.set(func(context.Context) ([]cri.Sandbox, error) {
				return []cri.Sandbox{sandbox, meshedSandbox("other")}, nil
			})
			s.Round(t.Context())
			if w := s.watched["web"]; w == nil || w.finding != finding(report.Unknown, "the shim is stuck") {
				t.Errorf("%s: before: %+v", name, w)
			}
			s.expect(t, name, 1, time.Now())
			sandbox.NetNS, sandbox.NetworkError = tt.netns, nil
			time.Sleep(retryInterval)
			s.Round(t.Context())
			w := s.watched["web"]
			if got := fmt.Sprint(w != nil); got != fmt.Sprint(tt.want != "") || w != nil && w.finding.Reason != "the agent is asked" {
				t.Errorf("%s: after: %+v", name, w)
			}
		})
	}
}
