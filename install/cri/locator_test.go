// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// locatable is a runtime that reports the networks of sandboxes, unless it fails or
// hangs.
type locatable struct {
	runtimeapi.RuntimeServiceClient
	ids        []string
	state      runtimeapi.PodSandboxState
	containers []runtimeapi.ContainerState // of each sandbox
	faults     map[string]codes.Code
	hangs      string // a letter for each sandbox
	asked      []string
}

func (l *locatable) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest, ...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error) {
	if code := l.faults["list"]; code != codes.OK {
		return nil, status.Error(code, "a fault")
	}
	list := &runtimeapi.ListPodSandboxResponse{}
	for _, id := range l.ids {
		list.Items = append(list.Items, &runtimeapi.PodSandbox{Id: id})
	}
	return list, nil
}

func (l *locatable) ListContainers(_ context.Context, request *runtimeapi.ListContainersRequest, _ ...grpc.CallOption) (*runtimeapi.ListContainersResponse, error) {
	if l.faults["web"] != codes.OK {
		return nil, status.Error(l.faults["web"], "a fault")
	}
	list := &runtimeapi.ListContainersResponse{}
	if request.GetFilter().GetPodSandboxId() != "web" { // another pod's as well
		list.Containers = []*runtimeapi.Container{{State: runtimeapi.ContainerState_CONTAINER_RUNNING}}
	}
	for _, state := range l.containers {
		list.Containers = append(list.Containers, &runtimeapi.Container{State: state})
	}
	return list, nil
}

func (l *locatable) PodSandboxStatus(ctx context.Context, request *runtimeapi.PodSandboxStatusRequest, _ ...grpc.CallOption) (*runtimeapi.PodSandboxStatusResponse, error) {
	id := request.PodSandboxId
	l.asked = append(l.asked, id)
	if slices.Contains([]byte(l.hangs), id[0]) {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if code := l.faults[id]; code != codes.OK {
		return nil, status.Error(code, "a fault")
	}
	if !request.Verbose {
		return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{State: l.state}}, nil
	}
	found := answer(fmt.Sprintf(`{"runtimeSpec":{"linux":{"namespaces":[{"type":"network","path":"/netns/%s"}]}}}`, id))
	found.Status = &runtimeapi.PodSandboxStatus{State: l.state}
	return found, nil
}

func (l *locatable) locator() *Locator {
	return NewLocator(&Client{sockets: []string{"/"}, runtime: l})
}

// expectNetworks wants a listing of all sandboxes with these network namespaces, and
// the reason where there is none.
func expectNetworks(t *testing.T, l *Locator, want map[string]string) {
	t.Helper()
	list, err := l.Sandboxes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, sandbox := range list {
		got[sandbox.ID] = sandbox.NetNS
		if (sandbox.NetworkError == nil) == (sandbox.NetNS == "") {
			t.Errorf("%s: %q, %v", sandbox.ID, sandbox.NetNS, sandbox.NetworkError)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestNetworkError lists a sandbox whose network can't be read with its error, and keeps
// the networks of all others.
func TestNetworkError(t *testing.T) {
	t.Parallel()
	runtime := &locatable{ids: []string{"a", "b", "c"}, faults: map[string]codes.Code{"a": codes.Internal, "c": codes.NotFound}}
	locator := runtime.locator()
	expectNetworks(t, locator, map[string]string{"a": "", "b": "/netns/b"})
	runtime.faults = map[string]codes.Code{"list": codes.Internal}
	if list, err := locator.Sandboxes(t.Context()); list != nil || status.Code(err) != codes.Internal {
		t.Errorf("listed %v, %v", list, err)
	}
	runtime.faults = nil
	expectNetworks(t, locator, map[string]string{"a": "/netns/a", "b": "/netns/b", "c": "/netns/c"})
	runtime.faults = map[string]codes.Code{"a": codes.Internal, "b": codes.Internal, "c": codes.NotFound}
	expectNetworks(t, locator, map[string]string{"a": "/netns/a", "b": "/netns/b", "c": "/netns/c"})
	if want := []string{"a", "b", "c", "c", "a"}; !slices.Equal(runtime.asked, want) {
		t.Errorf("asked for %q, want %q", runtime.asked, want)
	}
}

// TestHangingSandboxes locates a sandbox that is listed after so many for which the
// runtime does not answer that they use up the time of two listings.
func TestHangingSandboxes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runtime := &locatable{ids: []string{"a", "b", "c", "d", "e", "f", "late"}, hangs: "abcdef"}
		locator := runtime.locator()
		want := map[string]string{"a": "", "b": "", "c": "", "d": "", "e": "", "f": "", "late": ""}
		expectNetworks(t, locator, want)
		expectNetworks(t, locator, want)
		want["late"] = "/netns/late"
		expectNetworks(t, locator, want)
	})
}

// TestEndedSandboxes lists new sandboxes again and again, of which some have a fault: what is
// known of those that ended does not pile up, and an id that is used again is asked for again.
func TestEndedSandboxes(t *testing.T) {
	t.Parallel()
	runtime := &locatable{}
	locator := runtime.locator()
	for round := range 100 {
		bad := fmt.Sprint("bad-", round)
		runtime.ids, runtime.faults = []string{"stays", fmt.Sprint("web-", round), bad}, map[string]codes.Code{bad: codes.Internal}
		if round == 99 {
			runtime.ids[1] = "web-0"
		}
		if _, err := locator.Sandboxes(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(locator.networks) != 2 || len(locator.failures) != 1 {
		t.Errorf("%d networks and %d failures are kept of 3 sandboxes", len(locator.networks), len(locator.failures))
	}
	if n := len(runtime.asked); n != 201 || runtime.asked[n-2] != "web-0" {
		t.Errorf("%d requests, the last for %q", n, runtime.asked[max(0, n-3):])
	}
}
