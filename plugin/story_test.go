// SPDX-License-Identifier: Apache-2.0

package main

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
	"github.com/capture-cni/capture-cni/plugin/podnet"
	"github.com/capture-cni/capture-cni/plugin/report"
)

// TestReasons has one for every error that an ADD can end with.
func TestReasons(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		want report.Reason
	}{
		{types.NewError(types.ErrDecodingFailure, "", ""), report.Input},
		{badArgs("x"), report.Input},
		{config.Faults{"x"}, report.Configuration},
		{untrusted("x"), report.Configuration},
		{lookupError{errors.New("x")}, report.Lookup},
		{capture.BadInput{{}}, report.Annotations},
		{capture.Refusal("x"), report.Refused},
		{fmt.Errorf("x: %w", podnet.ErrGone), report.Gone},
		{errors.New("x"), report.Kernel},
	} {
		s := newStory("sandbox")
		s.failed(test.err)
		if s.Reason != test.want || !slices.Contains(report.Reasons(s.Verdict), s.Reason) || s.Code != asCNIError(test.err).Code {
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
	if err := os.Mkdir(report.Ring(socket), 0o700); err != nil {
		t.Fatal(err)
	}
	kept := func() (count int) {
		if err := report.Replay(report.Ring(socket), func([]byte) { count++ }); err != nil {
			t.Error(err)
		}
		return count
	}
	newStory("a").tell(socket, errors.New("x"))
	if got := kept(); got != 0 {
		t.Errorf("%d kept in a directory that is not allowed", got)
	}
	t.Setenv(config.DirectoryVariable, dir)
	newStory("a").tell("", errors.New("x")) // switched off
	newStory("a").tell(socket, nil)
	if got := kept(); got != 0 {
		t.Errorf("%d kept", got)
	}
	newStory("a").tell(socket, errors.New("x"))
	if got := kept(); got != 1 {
		t.Errorf("%d kept of a failure", got)
	}
	lab.AgentSocket(t, socket)
	newStory("a").tell(socket, errors.New("x"))
	if got := kept(); got != 0 {
		t.Errorf("%d kept though it was taken", got)
	}
}
