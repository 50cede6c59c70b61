// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/telemetry"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
	"github.com/capture-cni/capture-cni/plugin/podnet"
	"github.com/capture-cni/capture-cni/plugin/record"
	"github.com/capture-cni/capture-cni/plugin/trust"
)

// TestReasons expects the reason of every error that an ADD can end with.
func TestReasons(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want capture.Reason
	}{
		{failure{errors.New("x"), types.ErrDecodingFailure, capture.ReasonInput}, capture.ReasonInput},
		{argsError("x"), capture.ReasonInput},
		{config.Faults{"x"}, capture.ReasonConfiguration},
		{trust.Untrusted("x"), capture.ReasonConfiguration},
		{lookup.Error{Err: errors.New("x")}, capture.ReasonLookup},
		{capture.BadInput{{}}, capture.ReasonAnnotations},
		{capture.Refusal("x"), capture.ReasonRefused},
		{fmt.Errorf("x: %w", podnet.ErrGone), capture.ReasonGone},
		{errors.New("x"), capture.ReasonKernel},
	} {
		r := newRecorder("sandbox")
		r.failed(test.err)
		if r.Reason != test.want || !slices.Contains(telemetry.Reasons(r.Verdict), r.Reason) || r.Code != cniError(test.err).Code {
			t.Errorf("%v: got %q, code %d, want %q", test.err, r.Reason, r.Code, test.want)
		}
	}
}

// TestSend expects the records of failures that no agent received in the spool, and
// nothing in directories that are not allowed.
func TestSend(t *testing.T) {
	lab.RequireRoot(t)
	dir := t.TempDir()
	socket := filepath.Join(dir, config.AgentSocketName)
	if err := os.Mkdir(record.Spool(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	spooled := func() (count int) {
		if err := telemetry.ReplaySpool(record.Spool(socket), func([]byte) { count++ }); err != nil {
			t.Error(err)
		}
		return count
	}
	newRecorder("a").send(record.Send, socket, errors.New("x"))
	if got := spooled(); got != 0 {
		t.Errorf("%d spooled in a directory that is not allowed", got)
	}
	t.Setenv(config.DirectoryVariable, dir)
	newRecorder("a").send(record.Send, "", errors.New("x")) // disabled
	newRecorder("a").send(record.Send, socket, nil)
	if got := spooled(); got != 0 {
		t.Errorf("%d spooled, want only failures", got)
	}
	newRecorder("a").send(record.Send, socket, errors.New("x"))
	if got := spooled(); got != 1 {
		t.Errorf("%d spooled of one failure", got)
	}
	lab.AgentSocket(t, socket)
	newRecorder("a").send(record.Send, socket, errors.New("x"))
	if got := spooled(); got != 0 {
		t.Errorf("%d spooled though the agent received the record", got)
	}
}
