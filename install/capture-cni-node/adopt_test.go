// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// asked are the flags of a command that somebody gives in a container.
func asked(t *testing.T, given ...string) (*options, *pflag.FlagSet) {
	t.Helper()
	o := &options{}
	flags := pflag.NewFlagSet("verify", pflag.ContinueOnError)
	o.declare(flags)
	flags.StringP("output", "o", "text", "")
	flags.BoolP("help", "h", false, "")
	if err := flags.Parse(given); err != nil {
		t.Fatal(err)
	}
	return o, flags
}

// TestAdoptLine completes what was given by the flags of the container's
// process, and does not mind those that it alone knows.
func TestAdoptLine(t *testing.T) {
	t.Parallel()
	const program = "/capture-cni-node"
	for _, tt := range []struct {
		name        string
		given, line []string
		command     string
		change      func(o *options)
	}{
		{"nothing", nil, []string{program}, "", func(*options) {}},
		{"nothing at all", nil, []string{""}, "", func(*options) {}},
		{"a command", nil, []string{program, "run"}, "run", func(*options) {}},
		{
			"its flags", nil,
			[]string{program, "run", "--mode=insert", "--state-dir", "/state", "--token-ttl=1h"},
			"run",
			func(o *options) { o.mode, o.stateDir, o.tokenTTL = "insert", "/state", time.Hour },
		},
		{
			"flags before the command", nil,
			[]string{program, "--mode=insert", "--state-dir", "/state", "guard", "--policy=evict"},
			"guard",
			func(o *options) { o.mode, o.stateDir = "insert", "/state" },
		},
		{
			"given flags win",
			[]string{"--mode=owned"},
			[]string{program, "run", "--mode=insert", "--run-dir=/r"},
			"run",
			func(o *options) { o.mode, o.runDir = "owned", "/r" },
		},
		{
			"given as they are anyway",
			[]string{"--mode=auto"},
			[]string{program, "run", "--mode=insert"},
			"run",
			func(o *options) { o.mode = "auto" },
		},
		{
			"unknown ones", nil,
			[]string{program, "run", "--listen=:15015", "--events=false", "--evict", "--round", "30s", "--mode=insert", "-v"},
			"run",
			func(o *options) { o.mode = "insert" },
		},
		{
			"an unknown switch before one of ours", nil,
			[]string{program, "guard", "--evict", "--mode=insert"},
			"guard",
			func(o *options) { o.mode = "insert" },
		},
		{
			"folders take the place of the default", nil,
			[]string{program, "run", "--bin-dir=/a", "--bin-dir=/b,/c"},
			"run",
			func(o *options) { o.binDirs = []string{"/a", "/b", "/c"} },
		},
		{
			"given folders win",
			[]string{"--bin-dir=/given"},
			[]string{program, "run", "--bin-dir=/a", "--bin-dir=/b"},
			"run",
			func(o *options) { o.binDirs = []string{"/given"} },
		},
		{
			"empty values", nil,
			[]string{program, "run", "--cri-socket=", "--root", ""},
			"run",
			func(o *options) { o.criSocket, o.root = "", "" },
		},
	} {
		want, _ := asked(t, tt.given...)
		tt.change(want)
		got, flags := asked(t, tt.given...)
		command, err := adoptLine(flags, tt.line)
		if err != nil || command != tt.command {
			t.Errorf("%s: command %q, %v, want %q", tt.name, command, err, tt.command)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(options{})); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
		if help, err := flags.GetBool("help"); help || err != nil {
			t.Errorf("%s: help is asked for: %v, %v", tt.name, help, err)
		}
		if output, err := flags.GetString("output"); output != "text" || err != nil {
			t.Errorf("%s: the output is %q, %v", tt.name, output, err)
		}
	}
}

// TestAdoptsNoRubbish names the flag whose value means nothing.
func TestAdoptsNoRubbish(t *testing.T) {
	t.Parallel()
	_, flags := asked(t)
	if command, err := adoptLine(flags, []string{"/capture-cni-node", "run", "--token-ttl=soon"}); err == nil || command != "" {
		t.Errorf("command %q, %v", command, err)
	}
	given, flags := asked(t, "--token-ttl=1h")
	if _, err := adoptLine(flags, []string{"/capture-cni-node", "run", "--token-ttl=soon"}); err != nil || given.tokenTTL != time.Hour {
		t.Errorf("what is given anyway: %s, %v", given.tokenTTL, err)
	}
}

// TestAdoptsOfItselfAlone leaves the flags alone where the first process is
// another program, as outside of the agent's containers.
func TestAdoptsOfItselfAlone(t *testing.T) {
	t.Parallel()
	if sameProgram("/proc/1/exe", "/proc/self/exe") {
		t.Fatal("the test is the first process here: run it by go test")
	}
	o, flags := asked(t)
	want, _ := asked(t)
	if command, err := adopt(flags); err != nil || command != "" {
		t.Errorf("command %q, %v", command, err)
	}
	if diff := cmp.Diff(want, o, cmp.AllowUnexported(options{})); diff != "" {
		t.Error(diff)
	}
	if !sameProgram("/proc/self/exe", "/proc/self/exe") || sameProgram("/proc/self/exe", "/none") || sameProgram("/none", "/none") {
		t.Error("programs are confused")
	}
	if !slices.Equal(o.binDirs, []string{"/opt/cni/bin"}) {
		t.Errorf("folders %q", o.binDirs)
	}
}
