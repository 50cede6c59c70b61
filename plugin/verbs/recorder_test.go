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
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podlookup"
	"github.com/capture-cni/capture-cni/plugin/podnet"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// TestReasons has one for every error that an ADD can end with.
func TestReasons(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want record.Reason
	}{
		{failure{errors.New("x"), types.ErrDecodingFailure, record.Input}, record.Input},
		{badArgs("x"), record.Input},
		{config.Faults{"x"}, record.Configuration},
		{podlookup.Untrusted("x"), record.Configuration},
		{podlookup.Error{Err: errors.New("x")}, record.Lookup},
		{capture.BadInput{{}}, record.Annotations},
		{capture.Refusal("x"), record.Refused},
		{fmt.Errorf("x: %w", podnet.ErrGone), record.Gone},
		{errors.New("x"), record.Kernel},
	} {
		s := newRecorder("sandbox")
		s.failed(test.err)
		if s.Reason != test.want || !slices.Contains(record.Reasons(s.Verdict), s.Reason) || s.Code != cniError(test.err).Code {
			t.Errorf("%v: got %q, code %d, want %q", test.err, s.Reason, s.Code, test.want)
		}
	}
}

// TestTell keeps what no agent takes, and only failures; it never writes to a
// directory that is not allowed.
func TestTell(t *testing.T) {
	lab.RequireRoot(t)
	dir := t.TempDir()
	socket := filepath.Join(dir, config.AgentSocketName)
	if err := os.Mkdir(record.Spool(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	kept := func() (count int) {
		if err := record.Replay(record.Spool(socket), func([]byte) { count++ }); err != nil {
			t.Error(err)
		}
		return count
	}
	newRecorder("a").tell(socket, errors.New("x"))
	if got := kept(); got != 0 {
		t.Errorf("%d kept in a directory that is not allowed", got)
	}
	t.Setenv(config.DirectoryVariable, dir)
	newRecorder("a").tell("", errors.New("x")) // switched off
	newRecorder("a").tell(socket, nil)
	if got := kept(); got != 0 {
		t.Errorf("%d kept", got)
	}
	newRecorder("a").tell(socket, errors.New("x"))
	if got := kept(); got != 1 {
		t.Errorf("%d kept of a failure", got)
	}
	lab.AgentSocket(t, socket)
	newRecorder("a").tell(socket, errors.New("x"))
	if got := kept(); got != 0 {
		t.Errorf("%d kept though it was taken", got)
	}
}
