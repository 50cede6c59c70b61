// SPDX-License-Identifier: Apache-2.0

// Command capture-cni is the CNI plugin: called last in a chain while a pod's
// network is set up, it installs the rules that hand the pod's traffic to its
// sidecar proxy. A pod outside the mesh costs it no API call and no rule.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/version"
	"golang.org/x/sys/unix"
)

func main() {
	stdout, err := claimStdout()
	if err != nil {
		fmt.Fprintln(os.Stderr, "capture-cni:", err)
		os.Exit(1)
	}
	os.Exit(run(os.Getenv("CNI_COMMAND"), stdout, os.Stderr))
}

// run answers one call and gives the exit status.
func run(command string, stdout, stderr io.Writer) int {
	return respond(func() ([]byte, error) { return call(command, stderr) }, stdout, stderr)
}

// respond writes an answer once, after everything else: stdout carries one
// JSON document, or none where the protocol wants none. A panic is an error.
func respond(call func() ([]byte, error), stdout, stderr io.Writer) int {
	answer, err := protect(call, stderr)
	if err != nil {
		if err := writeJSON(stdout, asCNIError(err)); err != nil {
			fmt.Fprintln(stderr, "capture-cni:", err)
		}
		return 1
	}
	if _, err := stdout.Write(answer); err != nil {
		fmt.Fprintln(stderr, "capture-cni: writing the result:", err)
		return 1
	}
	return 0
}

func protect(call func() ([]byte, error), stderr io.Writer) (answer []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(stderr, "%s\n", debug.Stack())
			answer, err = nil, fmt.Errorf("panic: %v", p)
		}
	}()
	return call()
}

// call dispatches to the verbs. DEL does not go through skel, which would
// refuse it for faults that must not keep a pod from ending.
func call(command string, stderr io.Writer) (answer []byte, err error) {
	switch command {
	case "DEL":
		_, _ = protect(func() ([]byte, error) { // a panic, too, must not keep a pod from ending
			del(os.Getenv("CNI_NETNS"), slog.New(slog.NewTextHandler(stderr, nil)))
			return nil, nil
		}, stderr)
		return nil, nil
	case "VERSION":
		return versions()
	}
	// The typed nil that skel returns on success must not become a non-nil error.
	if err := skel.PluginMainFuncsWithError(skel.CNIFuncs{
		Add:    func(args *skel.CmdArgs) error { answer, err = add(args, stderr); return coded(err) },
		Check:  func(args *skel.CmdArgs) error { return coded(check(args, stderr)) },
		Status: func(args *skel.CmdArgs) error { return coded(status(args)) },
		GC:     func(*skel.CmdArgs) error { return nil }, // nothing of ours outlives a namespace
	}, supported(), about()); err != nil {
		return nil, err
	}
	return answer, nil
}

// supported are the versions that know chaining.
func supported() version.PluginInfo { return version.VersionsStartingFrom("0.3.0") }

func versions() ([]byte, error) {
	var out bytes.Buffer
	err := supported().Encode(&out)
	return out.Bytes(), err
}

// claimStdout keeps the protocol's stdout for run alone: whatever else in this
// process prints to file descriptor 1 reaches stderr.
func claimStdout() (*os.File, error) {
	fd, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("keeping stdout: %w", err)
	}
	if err := unix.Dup3(2, 1, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("pointing stdout at stderr: %w", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "stdout"), nil
}

func about() string {
	build := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		build = info.Main.Version
	}
	return "CNI plugin capture-cni " + build
}
