// SPDX-License-Identifier: Apache-2.0

// Package verbs answers the calls of the CNI protocol: the decisions of each, in
// their order.
package verbs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/capture-cni/capture-cni/config"
)

// Run answers the call that the environment and stdin describe, and returns the
// exit status.
func Run(command string, stdout, stderr io.Writer) int {
	return respond(func() ([]byte, error) { return call(command, stderr) }, stdout, stderr)
}

// respond writes an answer once, after everything else: stdout carries one
// JSON document, or none where the protocol wants none. A panic is an error.
func respond(call func() ([]byte, error), stdout, stderr io.Writer) int {
	answer, err := protect(call, stderr)
	if err != nil {
		if err := writeJSON(stdout, cniError(err)); err != nil {
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
	}, supported(), "CNI plugin capture-cni "+config.OwnVersion()); err != nil {
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

func writeJSON(w io.Writer, value any) error {
	document, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	if _, err := w.Write(append(document, '\n')); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}
