// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestNetNS reads what containerd tells of a sandbox with verbose set.
func TestNetNS(t *testing.T) {
	for name, test := range map[string]struct{ info, want string }{
		"its own": {`{"pid":4711,"processStatus":"running","netNamespaceClosed":false,"image":"registry.k8s.io/pause:3.10","snapshotter":"overlayfs","runtimeHandler":"",
			"config":{"metadata":{"name":"web","uid":"6c1f8c3e","namespace":"shop"}},
			"runtimeSpec":{"ociVersion":"1.2.1","linux":{"namespaces":[{"type":"pid"},{"type":"ipc"},{"type":"uts"},{"type":"mount"},{"type":"network","path":"/var/run/netns/cni-6c1f8c3e"}]}}}`, "/var/run/netns/cni-6c1f8c3e"},
		"the node's":   {`{"runtimeSpec":{"linux":{"namespaces":[{"type":"pid"},{"type":"mount"}]}}}`, ""},
		"nothing told": {`{}`, ""},
	} {
		if got, err := networkOf(answer(test.info)); err != nil || got != (network{netns: test.want}) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, test.want)
		}
	}
	if got, err := networkOf(answer("")); err == nil {
		t.Errorf("no information: %q", got)
	}
}

// TestOCIRuntime reads the type of the shim and its program, and the handler's name.
func TestOCIRuntime(t *testing.T) {
	for _, tt := range []struct {
		handler, info string
		want          OCIRuntime
	}{
		{"fast", `{}`, OCIRuntime{Handler: "fast"}},
		{"fast", `{"runtimeType":"io.containerd.runc.v2","runtimeOptions":{"binary_name":"/usr/bin/runsc"}}`, OCIRuntime{"fast", "io.containerd.runc.v2", "/usr/bin/runsc"}},
		{"fast", `{"runtimeType":"io.containerd.kata.v2","runtimeOptions":"of another form"}`, OCIRuntime{Handler: "fast", Type: "io.containerd.kata.v2"}},
		{"", `{"runtimeSpec":{"annotations":{"app":"web","io.kubernetes.cri-o.RuntimeHandler":"kata"}}}`, OCIRuntime{Handler: "kata"}}, // CRI-O 1.36
		{"", `{"runtimeSpec":{"annotations":null}}`, OCIRuntime{}},
	} {
		told := answer(tt.info)
		told.Status = &runtimeapi.PodSandboxStatus{RuntimeHandler: tt.handler}
		if got, err := networkOf(told); err != nil || got.runtime != tt.want {
			t.Errorf("%s: %+v, %v; want %+v", tt.info, got.runtime, err, tt.want)
		}
	}
}

func answer(info string) *runtimeapi.PodSandboxStatusResponse {
	return &runtimeapi.PodSandboxStatusResponse{Info: map[string]string{"info": info}}
}

// TestNetNSRecorded reads what CRI-O answered, with an infrastructure container
// and without. It names a path for a pod in the node's network, too.
func TestNetNSRecorded(t *testing.T) {
	files, err := filepath.Glob("testdata/cri-o-*.json")
	if err != nil || len(files) != 4 {
		t.Fatalf("recordings: %q, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var recorded runtimeapi.PodSandboxStatusResponse
		if err := protojson.Unmarshal(text, &recorded); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if !strings.Contains(recorded.Info["info"], `"type":"network","path":"/var/run/netns/`) {
			t.Fatalf("%s: no path in %s", file, recorded.Info["info"])
		}
		at, err := networkOf(&recorded)
		got := at.netns
		if own := strings.HasSuffix(file, "own-network.json"); err != nil || strings.HasPrefix(got, "/var/run/netns/") != own || (got == "") == own {
			t.Errorf("%s: %q, %v", file, got, err)
		}
	}
}

// listing is a runtime whose sandboxes each have a state.
type listing struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	sandboxes []*runtimeapi.PodSandbox
}

func (l listing) ListPodSandbox(_ context.Context, request *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{Items: slices.DeleteFunc(slices.Clone(l.sandboxes), func(s *runtimeapi.PodSandbox) bool {
		state := request.GetFilter().GetState()
		return state != nil && s.State != state.State
	})}, nil
}

// TestSandboxes lists the sandboxes that run, and no other, as they were made.
func TestSandboxes(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	labels, annotations := map[string]string{"app": "web"}, map[string]string{"inject": "true"}
	metadata := &runtimeapi.PodSandboxMetadata{Namespace: "shop", Name: "web", Uid: "uid-1"}
	serve(t, socket, listing{sandboxes: []*runtimeapi.PodSandbox{
		{Id: "gone", State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY},
		{Id: "4ed1", Metadata: metadata, Labels: labels, Annotations: annotations, CreatedAt: 7e9},
	}})
	got, err := newClient(t, socket).Sandboxes(t.Context())
	want := []Sandbox{{ID: "4ed1", Namespace: "shop", Name: "web", UID: "uid-1", Labels: labels, Annotations: annotations, Created: time.Unix(7, 0)}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v: %s", err, diff)
	}
}

// TestRuns reports that a sandbox runs only if the runtime says so, and in the network
// namespace that it had.
func TestRuns(t *testing.T) {
	t.Parallel()
	const ready, notReady = runtimeapi.PodSandboxState_SANDBOX_READY, runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	for name, tt := range map[string]struct {
		state runtimeapi.PodSandboxState
		netns string // that it had
		fault codes.Code
		runs  bool
	}{
		"runs":              {ready, "/netns/web", codes.OK, true},
		"has ended":         {notReady, "/netns/web", codes.OK, false},
		"another namespace": {ready, "/netns/other", codes.OK, false},
		"unknown":           {ready, "/netns/web", codes.NotFound, false},
		"runtime gone":      {ready, "/netns/web", codes.Unavailable, false},
	} {
		runtime := &locatable{state: tt.state, faults: map[string]codes.Code{"web": tt.fault}}
		runs, err := runtime.locator().Runs(t.Context(), Sandbox{ID: "web", NetNS: tt.netns})
		if runs != tt.runs || status.Code(err) != tt.fault {
			t.Errorf("%s: %v, %v", name, runs, err)
		}
	}
}

// TestHaveExited takes a sandbox for one that has ended only if it has containers and
// none of them may run.
func TestHaveExited(t *testing.T) {
	t.Parallel()
	const (
		created, running = runtimeapi.ContainerState_CONTAINER_CREATED, runtimeapi.ContainerState_CONTAINER_RUNNING
		exited, unknown  = runtimeapi.ContainerState_CONTAINER_EXITED, runtimeapi.ContainerState_CONTAINER_UNKNOWN
	)
	for name, tt := range map[string]struct {
		containers []runtimeapi.ContainerState
		fault      codes.Code
		exited     bool
	}{
		"none yet":   {nil, codes.OK, false},
		"one runs":   {[]runtimeapi.ContainerState{exited, running}, codes.OK, false},
		"one starts": {[]runtimeapi.ContainerState{exited, created}, codes.OK, false},
		"not known":  {[]runtimeapi.ContainerState{unknown}, codes.OK, false},
		"all exited": {[]runtimeapi.ContainerState{exited, exited}, codes.OK, true},
		"a fault":    {[]runtimeapi.ContainerState{exited}, codes.Unavailable, false},
	} {
		runtime := &locatable{containers: tt.containers, faults: map[string]codes.Code{"web": tt.fault}}
		all, err := runtime.locator().HaveExited(t.Context(), Sandbox{ID: "web"})
		if all != tt.exited || status.Code(err) != tt.fault {
			t.Errorf("%s: %v, %v", name, all, err)
		}
	}
}
