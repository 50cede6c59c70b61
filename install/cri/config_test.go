// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// reporting is a runtime that answers Status in one way.
type reporting struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	info map[string]string
	err  error
}

func (r reporting) Status(_ context.Context, request *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	if !request.Verbose {
		return &runtimeapi.StatusResponse{}, r.err
	}
	return &runtimeapi.StatusResponse{Info: r.info}, r.err
}

// TestCNIConfig tells runtimes that never report their configuration from one that
// fails: the agent decides by the files only for the former.
func TestCNIConfig(t *testing.T) {
	t.Parallel()
	const loaded = `{"Networks": [{"Config": {"Plugins": [{"Network": {"type": "capture-cni"}}]}}]}`
	for name, test := range map[string]struct {
		runtime               reporting
		reports, neverReports bool
	}{
		"containerd":          {reporting{info: map[string]string{"cniconfig": loaded}}, true, false},
		"CRI-O":               {reporting{info: map[string]string{"config": "{}"}}, false, true},
		"another form":        {reporting{info: map[string]string{"cniconfig": "Networks: none"}}, false, true},
		"no Status":           {reporting{err: status.Error(codes.Unimplemented, "unknown method")}, false, true},
		"a Status that fails": {reporting{err: status.Error(codes.Internal, "busy")}, false, false},
	} {
		socket := filepath.Join(t.TempDir(), "s")
		serve(t, socket, test.runtime)
		config, err := newClient(t, socket).CNIConfig(t.Context())
		if got := err == nil && config.Calls("capture-cni"); got != test.reports {
			t.Errorf("%s: reports %v, %v", name, got, err)
		}
		if got := errors.Is(err, ErrNoConfig); got != test.neverReports || name == "CRI-O" && err.Error() != ErrNoConfig.Error() {
			t.Errorf("%s: never reports %v: %v", name, got, err)
		}
	}
}
