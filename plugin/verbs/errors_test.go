// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
	"github.com/capture-cni/capture-cni/plugin/podnet"
	"github.com/capture-cni/capture-cni/plugin/trust"
)

// TestCodes checks the documented codes, which runtimes and operators' alerts use.
func TestCodes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		err  error
		code uint
	}{
		{"configuration", config.Faults{"a", "b"}, 7},
		{"untrusted file", trust.Untrusted("x"), 7},
		{"lookup", lookup.Error{Err: errors.New("x")}, 11},
		{"lookup without a kubeconfig", lookup.Error{Err: fs.ErrNotExist}, 11},
		{"lookup that ran out of time", lookup.Error{Err: context.DeadlineExceeded}, 11},
		{"annotation", capture.BadInput{{Key: "k", Value: "v", Problem: "w"}}, 100},
		{"refusal", capture.Refusal("x"), 101},
		{"gone", podnet.ErrGone, 3},
		{"anything else", errors.New("x"), 999},
		{"already coded", types.NewError(4, "x", "y"), 4},
	} {
		for _, err := range []error{test.err, fmt.Errorf("pod shop/web: %w", test.err), errors.Join(test.err, errors.New("closing"))} {
			got := cniError(err)
			if got.Code != test.code {
				t.Errorf("%s: %v has code %d, want %d", test.name, err, got.Code, test.code)
			}
			if !strings.Contains(err.Error(), got.Msg) {
				t.Errorf("%s: message %q is not part of %q", test.name, got.Msg, err)
			}
		}
	}
	if err := withCode(nil); err != nil {
		t.Errorf("withCode(nil) = %v", err)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, fs.ErrClosed }

// TestClosedStdout expects a failing exit status if the output can't be written.
func TestClosedStdout(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func() ([]byte, error){
		"a result": func() ([]byte, error) { return []byte("{}\n"), nil },
		"an error": func() ([]byte, error) { return nil, errors.New("x") },
		"a panic":  func() ([]byte, error) { panic("x") },
	} {
		var log strings.Builder
		if status := respond(call, failingWriter{}, &log); status != 1 || !strings.Contains(log.String(), "writing the") {
			t.Errorf("%s: status %d, log %q", name, status, log.String())
		}
	}
}

// TestLongMessage cuts a message behind its longest.
func TestLongMessage(t *testing.T) {
	t.Parallel()
	for length, cut := range map[int]bool{maxMessage: false, maxMessage + 1: true} {
		text := strings.Repeat("x", length)
		if got := classify(errors.New(text)).message(); (got != text) != cut || strings.HasSuffix(got, "… (cut at 16384 bytes)") != cut {
			t.Errorf("of %d bytes: %d bytes", length, len(got))
		}
	}
}

// TestDelSucceeds runs DEL for namespaces that are none: it prints nothing.
func TestDelSucceeds(t *testing.T) {
	for _, netns := range []string{"", "/nonexistent", "/proc/self/ns/net", t.TempDir(), "relative", "\x00"} {
		if netns != "\x00" {
			t.Setenv("CNI_NETNS", netns)
		}
		var out, log strings.Builder
		if status := Run("DEL", &out, &log); status != 0 || out.String() != "" {
			t.Errorf("%q: status %d, stdout %q", netns, status, out.String())
		}
	}
}

// TestErrorDocument reads the error of calls that skel refuses.
func TestErrorDocument(t *testing.T) {
	for _, command := range []string{"ADD", "CHECK", "STATUS", "GC", "add"} {
		t.Setenv("CNI_COMMAND", command)
		var out, log strings.Builder
		status := Run(command, &out, &log)
		if status != 1 || !strings.HasPrefix(out.String(), "{\n") || strings.Count(out.String(), `"code"`) != 1 {
			t.Errorf("%q: status %d, stdout %q", command, status, out.String())
		}
	}
	var out, log strings.Builder
	if status := Run("VERSION", &out, &log); status != 0 || !strings.Contains(out.String(), `["0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]`) {
		t.Errorf("VERSION: status %d, stdout %q", status, out.String())
	}
}
