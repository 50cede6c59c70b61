// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/install/telemetry"
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
// sandboxes, and does not repair them: they may have ended. It catches up once the runtime
// answers.
func TestRuntimeAway(t *testing.T) {
	t.Parallel()
	n := newNode()
	conn := n.listen(t)
	stays, breaks, ends := n.run(t, "stays"), n.run(t, "breaks"), n.run(t, "ends")
	for _, p := range []*pod{stays, breaks, ends} {
		p.capture(t, nil)
	}
	runtime := &awayRuntime{node: n}
	g := n.newGuard(t, options{runtime: runtime})
	g.finds(t, report.Captured, report.Captured, report.Captured)

	runtime.away = true
	n.run(t, "later")
	delete(n.sandboxes, "ends")
	breaks.nft(t, "delete", "table", "inet", "capture-cni")
	for range 2 {
		g.finds(t, report.Captured, report.Captured, report.Uncaptured)
	}
	records := receive(t, conn)
	if of := records["breaks"]; len(records) != 1 || len(of) != 1 || of[0].Verdict != telemetry.Found || !strings.Contains(of[0].Message, "not repaired") || !strings.Contains(of[0].Message, "connection refused") {
		t.Errorf("it reports %+v", records)
	}
	if breaks.rules(t) != (netfilter.State{}) {
		t.Error("it repairs a pod that may have ended")
	}

	runtime.away = false
	g.finds(t, report.Captured, report.Captured, report.Captured)
	records = receive(t, conn)
	expectRepair(t, records["breaks"], telemetry.Uncaptured)
	expectRepair(t, records["later"], telemetry.Uncaptured)
}

// hangingCRI is a runtime that can stop to answer requests for a listing or about a pod.
type hangingCRI struct {
	criStub
	mu   sync.Mutex
	hang chan struct{} // closed while it answers
}

// wait fails once the request ends: the server learns of a deadline before the client
// does, so that an answer could still reach it.
func (h *hangingCRI) wait(ctx context.Context) error {
	h.mu.Lock()
	hang := h.hang
	h.mu.Unlock()
	select {
	case <-hang:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
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

// TestHangingRuntime runs the built guard while the runtime hangs: its rounds go on, and
// its metrics say since when it knows no new pod.
func TestHangingRuntime(t *testing.T) {
	t.Parallel()
	n := newNode()
	stays, breaks := n.run(t, "stays"), n.run(t, "breaks")
	stays.capture(t, nil)
	breaks.capture(t, nil)
	answers, hangs := make(chan struct{}), make(chan struct{})
	close(answers)
	runtime := &hangingCRI{criStub: newCRIStub(stays, breaks), hang: answers}
	runDir := t.TempDir()
	n.serveIn(t, runDir)
	b := startGuard(t, runDir, "--round", "1s", "--cri-socket", serveCRI(t, t.TempDir(), runtime))
	b.waitForCaptured(t, 2)

	runtime.mu.Lock()
	runtime.hang = hangs
	runtime.mu.Unlock()
	began := float64(time.Now().Add(time.Second).UnixMilli()) / 1000 // one listing may have been on its way
	breaks.nft(t, "delete", "table", "inet", "capture-cni")
	lab.Eventually(t, func() error {
		listed, err := b.metric("guard_last_listing_timestamp_seconds")
		round, roundErr := b.metric("guard_last_round_timestamp_seconds")
		uncaptured, podsErr := b.metric(`pods{mesh="istio",state="uncaptured"}`)
		if err := errors.Join(err, roundErr, podsErr); err != nil {
			return err
		}
		if listed == 0 || listed > began {
			t.Fatalf("the last listing was at %f", listed)
		}
		if round < began+2 || uncaptured != 1 { // more than the guard waits for a listing
			return fmt.Errorf("the last round was at %f, with %v pods uncaptured", round, uncaptured)
		}
		return nil
	})
	if breaks.rules(t) != (netfilter.State{}) {
		t.Error("it repairs a pod that may have ended")
	}
	close(hangs)
	b.waitForCaptured(t, 2)
	if breaks.rules(t) == (netfilter.State{}) {
		t.Error("it is not repaired")
	}
}
