// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// TestOutputLimits has programs print too much: errors are cut, and rules are too many, however the program
// ends.
func TestOutputLimits(t *testing.T) {
	t.Parallel()
	printing := func(size int) string { return fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", size) }
	for script, want := range map[string]struct {
		out      int
		errors   int // bytes
		tooLarge bool
	}{
		printing(maxStdout):                         {out: maxStdout},
		printing(maxStdout + 1):                     {tooLarge: true},
		printing(maxStdout+1) + "; exit 3":          {tooLarge: true},
		printing(2*maxStderr) + " >&2; echo":        {out: 1},
		printing(maxStderr-1) + " >&2; exit 3":      {errors: maxStderr - 1},
		"exec >&2; " + printing(2<<20) + "; exit 3": {errors: maxStderr},
	} {
		path := filepath.Join(t.TempDir(), "iptables-save")
		lab.Check(t, lab.WriteProgram(path, []byte("#!/bin/sh\n"+script+"\n")))
		out, err := run(t.Context(), "", nil, path)
		tooLarge, ok := errors.AsType[nfnetlink.TooLarge](err)
		if ok != want.tooLarge || ok && tooLarge.What != "bytes of rules, as iptables-save prints them" {
			t.Errorf("%s: %.100v", script, err)
		}
		text := fmt.Sprint(err)
		if len(out) != want.out || (err != nil) != (ok || want.errors > 0) || strings.Count(text, "x") < want.errors || len(text) > want.errors+300 {
			t.Errorf("%s: %d bytes of output, %d of an error: %.100v", script, len(out), len(text), err)
		}
	}
}

// TestProgramWithAChild ends a program at its deadline, with a child that holds the program's output open,
// as modprobe does.
func TestProgramWithAChild(t *testing.T) {
	t.Parallel()
	path, pid := filepath.Join(t.TempDir(), "iptables-save"), filepath.Join(t.TempDir(), "pid")
	lab.Check(t, lab.WriteProgram(path, []byte("#!/bin/sh\nsleep 600 & echo $! > "+pid+"; wait\n")))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := run(ctx, "", nil, path)
		ended <- err
	}()
	var child int
	lab.Eventually(t, func() error {
		content, err := os.ReadFile(pid)
		if err == nil {
			child, err = strconv.Atoi(strings.TrimSpace(string(content)))
		}
		return err
	})
	t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the program ended with %v", err)
		}
	case <-time.After(lab.Patience):
		t.Error("the wait goes on")
	}
}

func TestParseVersion(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		variant config.Backend
		wait    bool
		err     string
	}{
		"iptables v1.8.9 (nf_tables)\n":      {variant: config.IPTablesNFT},
		"ip6tables v1.8.9 (legacy)\n":        {variant: config.IPTablesLegacy, wait: true},
		"iptables v1.6.2\n":                  {variant: config.IPTablesLegacy, wait: true},
		"iptables v1.6.1\n":                  {variant: config.IPTablesLegacy},
		"iptables v1.4.21\n":                 {variant: config.IPTablesLegacy},
		"iptables v1.9.0 (bpf)\n":            {err: `"iptables v1.9.0 (bpf)" names an unknown variant`},
		"BusyBox\n":                          {err: `"BusyBox" is no version`},
		"":                                   {err: `"" is no version`},
		"iptables v1.99999999999999999999.1": {err: "is no version"},
	} {
		variant, wait, err := parseVersion(text)
		if err == nil && want.err != "" || err != nil && (want.err == "" || !strings.Contains(err.Error(), want.err)) {
			t.Errorf("%q: got error %v, want %q", text, err, want.err)
		}
		if variant != want.variant || wait != want.wait {
			t.Errorf("%q: got %q, wait %v", text, variant, wait)
		}
	}
}
