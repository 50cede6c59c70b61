// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// eventRuntime is a runtime that sends events, as containerd does.
type eventRuntime struct {
	criStub
	version   string
	connected chan struct{} // one for each stream
	events    chan *runtimeapi.ContainerEventResponse

	mu    sync.Mutex
	lists int
}

func (r *eventRuntime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "containerd", RuntimeVersion: r.version, RuntimeApiVersion: "v1"}, nil
}

func (r *eventRuntime) ListPodSandbox(ctx context.Context, asked *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lists++
	return r.criStub.ListPodSandbox(ctx, asked)
}

func (r *eventRuntime) GetContainerEvents(_ *runtimeapi.GetEventsRequest, stream runtimeapi.RuntimeService_GetContainerEventsServer) error {
	r.connected <- struct{}{}
	for {
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case event := <-r.events:
			if err := stream.Send(event); err != nil {
				return err
			}
		}
	}
}

// begin adds a sandbox to the listing.
func (r *eventRuntime) begin(s cri.Sandbox) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.items = append(r.items, &runtimeapi.PodSandbox{
		Id: s.ID, State: runtimeapi.PodSandboxState_SANDBOX_READY, Annotations: s.Annotations,
		Metadata: &runtimeapi.PodSandboxMetadata{Namespace: s.Namespace, Name: s.Name, Uid: s.UID},
	})
}

func (r *eventRuntime) listed() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lists
}

// eventNode is a node whose runtime sends events, with a guard that runs, and
// uncaptured pods that have not begun.
type eventNode struct {
	*node
	runtime  *eventRuntime
	pods     []*pod
	examined chan struct{} // one for each examination
}

func newEventNode(t *testing.T, version string, pods int) *eventNode {
	t.Helper()
	d := &eventNode{node: newNode(), examined: make(chan struct{}, pods)}
	d.runtime = &eventRuntime{criStub: criStub{netns: map[string]string{}}, version: version, connected: make(chan struct{}, 16), events: make(chan *runtimeapi.ContainerEventResponse)}
	for i := range pods {
		p := d.run(t, fmt.Sprintf("web-%d", i))
		d.runtime.netns[p.sandbox.ID] = p.sandbox.NetNS
		d.pods = append(d.pods, p)
	}
	d.reading = func() {
		select {
		case d.examined <- struct{}{}:
		default: // a second examination
		}
	}
	connection, err := cri.New(serveCRI(t, t.TempDir(), d.runtime))
	lab.Check(t, err)
	keeper, _ := d.keeperOf(t, cri.NewLocator(connection), guard.Settings{Policy: guard.InPlace, Round: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	wait.Go(func() { keeper.Run(ctx) })
	t.Cleanup(func() { cancel(); wait.Wait(); _ = connection.Close() })
	return d
}

// expectCapture waits for the examination of a pod that has begun, and for its rules.
func (d *eventNode) expectCapture(t *testing.T, deadline <-chan time.Time, p *pod) {
	t.Helper()
	select {
	case <-d.examined:
	case <-deadline:
		t.Fatalf("%s is not examined; the sandboxes were listed %d times", p.sandbox.ID, d.runtime.listed())
	}
	for p.rules(t) == (netfilter.State{}) {
		select {
		case <-deadline:
			t.Fatalf("%s is not captured", p.sandbox.ID)
		case <-time.After(time.Millisecond):
		}
	}
}

// TestEventsSpeedUpDetection starts so many sandboxes, one after the other, that a
// guard without events would take twice the time to find them.
func TestEventsSpeedUpDetection(t *testing.T) {
	const pods = 8
	d := newEventNode(t, "2.1.0", pods)
	deadline := time.After(pods * 5 * time.Second / 2)
	select {
	case <-d.runtime.connected:
	case <-deadline:
		t.Fatal("the guard does not listen")
	}
	for _, p := range d.pods {
		d.runtime.begin(p.sandbox)
		began := time.Now()
		d.runtime.events <- &runtimeapi.ContainerEventResponse{
			ContainerId: p.sandbox.ID, ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT,
			PodSandboxStatus: &runtimeapi.PodSandboxStatus{Id: p.sandbox.ID},
		}
		d.expectCapture(t, deadline, p)
		t.Logf("%s: captured %s after its event", p.sandbox.ID, time.Since(began).Round(time.Millisecond))
	}
	if streams := len(d.runtime.connected); streams > 0 {
		t.Errorf("%d more streams", streams)
	}
}

// TestTakesNoEventsFromTheKubelet lists the sandboxes itself where an event stream
// would take events from the kubelet.
func TestTakesNoEventsFromTheKubelet(t *testing.T) {
	lab.RequireTime(t)
	const pods = 2
	d := newEventNode(t, "1.7.2", pods)
	deadline := time.After(2 * time.Minute)
	for _, p := range d.pods {
		d.runtime.begin(p.sandbox)
		d.expectCapture(t, deadline, p)
	}
	if streams := len(d.runtime.connected); streams > 0 {
		t.Errorf("%d streams", streams)
	}
}
