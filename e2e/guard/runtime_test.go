// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/received"
	"github.com/capture-cni/capture-cni/install/terms"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// awayRuntime is one that can be away.
type awayRuntime struct {
	*node
	away bool
}

func (r *awayRuntime) Sandboxes(ctx context.Context) ([]cri.Sandbox, error) {
	if r.away {
		return nil, errors.New("connection refused")
	}
	return r.node.Sandboxes(ctx)
}

// TestRuntimeAway examines the pods that are known while the runtime does not list its
// sandboxes, and neither repairs nor evicts them: they may have ended. It catches up
// once the runtime answers.
func TestRuntimeAway(t *testing.T) {
	for _, policy := range []guard.Policy{guard.InPlace, guard.Evict} {
		t.Run(string(policy), func(t *testing.T) {
			n := newNode()
			conn := n.listen(t)
			stays, breaks, ends := n.run(t, "stays"), n.run(t, "breaks"), n.run(t, "ends")
			for _, p := range []*pod{stays, breaks, ends} {
				p.capture(t, nil)
				n.own(p.sandbox.Name, "ReplicaSet")
			}
			runtime := &awayRuntime{node: n}
			keeper, registry := n.keeperOf(t, runtime, guard.Settings{Policy: policy})
			keeper.Round(t.Context())
			expect(t, registry, map[terms.State]float64{terms.Captured: 3})

			runtime.away = true
			n.run(t, "later")
			delete(n.sandboxes, "ends")
			breaks.nft(t, "delete", "table", "inet", "capture-cni")
			for range 2 {
				keeper.Round(t.Context())
				expect(t, registry, map[terms.State]float64{terms.Captured: 2, terms.Uncaptured: 1})
			}
			records := receive(t, conn)
			if of := records["breaks"]; len(records) != 1 || len(of) != 1 || of[0].Verdict != received.Found || !strings.Contains(of[0].Message, "not repaired") || !strings.Contains(of[0].Message, "connection refused") {
				t.Errorf("it reports %+v", records)
			}
			if breaks.rules(t) != (netfilter.State{}) {
				t.Error("it repairs a pod that may have ended")
			}

			runtime.away = false
			keeper.Round(t.Context())
			records = receive(t, conn)
			if policy == guard.Evict {
				expect(t, registry, map[terms.State]float64{terms.Captured: 1, terms.Uncaptured: 2})
				if of := records["breaks"]; len(of) != 1 || of[0].Verdict != received.EvictionRequested {
					t.Errorf("it requests no eviction: %+v", of)
				}
				return
			}
			expect(t, registry, map[terms.State]float64{terms.Captured: 3})
			expectRepair(t, records["breaks"], received.Uncaptured)
			expectRepair(t, records["later"], received.Uncaptured)
		})
	}
}

// hangingCRI is a runtime that stops to answer.
type hangingCRI struct {
	criStub
	mu    sync.Mutex
	hangs chan struct{} // until it is closed; nil for none
}

// wait fails once the request ends: the server learns of a deadline before the client
// does, so that an answer could still reach it.
func (h *hangingCRI) wait(ctx context.Context) error {
	h.mu.Lock()
	hangs := h.hangs
	h.mu.Unlock()
	if hangs == nil {
		return nil
	}
	select {
	case <-hangs:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *hangingCRI) hang() (release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hangs = make(chan struct{})
	return func() { close(h.hangs) }
}

func (h *hangingCRI) ListPodSandbox(ctx context.Context, asked *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	if err := h.wait(ctx); err != nil {
		return nil, err
	}
	return h.criStub.ListPodSandbox(ctx, asked)
}

func (h *hangingCRI) PodSandboxStatus(ctx context.Context, asked *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	if err := h.wait(ctx); err != nil {
		return nil, err
	}
	return h.criStub.PodSandboxStatus(ctx, asked)
}

func (h *hangingCRI) ListContainers(ctx context.Context, asked *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	if err := h.wait(ctx); err != nil {
		return nil, err
	}
	return h.criStub.ListContainers(ctx, asked)
}

var (
	lastRound   = regexp.MustCompile(`(?m)^capture_cni_guard_last_round_timestamp_seconds (\S+)$`)
	lastListing = regexp.MustCompile(`(?m)^capture_cni_guard_last_listing_timestamp_seconds (\S+)$`)
	uncaptured  = regexp.MustCompile(`(?m)^capture_cni_pods{mesh="istio",state="uncaptured"} (\S+)$`)
)

func number(t *testing.T, metrics string, of *regexp.Regexp) float64 {
	t.Helper()
	found := of.FindStringSubmatch(metrics)
	if found == nil {
		t.Fatalf("no %s in\n%s", of, metrics)
	}
	value, err := strconv.ParseFloat(found[1], 64)
	lab.Check(t, err)
	return value
}

// TestHangingRuntime runs the built guard while the runtime hangs for longer than the
// guard waits for a listing: its rounds go on, and its metrics say since when it knows
// no new pod.
func TestHangingRuntime(t *testing.T) {
	n := newNode()
	stays, breaks := n.run(t, "stays"), n.run(t, "breaks")
	runtime := &hangingCRI{criStub: criStub{netns: map[string]string{}}}
	for _, p := range []*pod{stays, breaks} {
		p.capture(t, nil)
		runtime.netns[p.sandbox.ID] = p.sandbox.NetNS
		runtime.items = append(runtime.items, &runtimeapi.PodSandbox{
			Id: p.sandbox.ID, State: runtimeapi.PodSandboxState_SANDBOX_READY, Annotations: p.sandbox.Annotations,
			Metadata: &runtimeapi.PodSandboxMetadata{Namespace: p.sandbox.Namespace, Name: p.sandbox.Name, Uid: p.sandbox.UID},
		})
	}
	runDir := t.TempDir()
	n.serveIn(t, runDir)
	_, address, _ := startGuard(t, runDir, "--round", "1s", "--cri-socket", serveCRI(t, t.TempDir(), runtime))
	waitForCaptured(t, address, 2)

	release := runtime.hang()
	began := time.Now()
	breaks.nft(t, "delete", "table", "inet", "capture-cni")
	const atLeast = 7 * time.Second // more than one request for a listing takes
	deadline := began.Add(time.Minute)
	for {
		now := metrics(t, address)
		listed, whole := number(t, now, lastListing), number(t, now, lastRound)
		if listed == 0 || listed > float64(began.Add(time.Second).UnixMilli())/1000 {
			t.Fatalf("the last listing was at %f", listed)
		}
		if whole-listed > atLeast.Seconds() && number(t, now, uncaptured) == 1 && strings.Contains(now, `capture_cni_pods{mesh="istio",state="captured"} 1`) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after a minute:\n%s", now)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if breaks.rules(t) != (netfilter.State{}) {
		t.Error("it repairs a pod that may have ended")
	}
	release()
	waitForCaptured(t, address, 2)
	if breaks.rules(t) == (netfilter.State{}) {
		t.Error("it is not repaired")
	}
}
