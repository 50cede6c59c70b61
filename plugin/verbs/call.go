// SPDX-License-Identifier: Apache-2.0

// Package verbs implements the verbs of the CNI protocol: ADD, CHECK, DEL, STATUS, GC and VERSION.
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
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/capture-cni/capture-cni/config"
)

// Run executes one CNI command, and returns the process's exit status. It reads the command's other
// arguments from the environment and stdin.
func Run(command string, stdout, stderr io.Writer) int {
	return respond(func() ([]byte, error) { return call(command, stderr) }, stdout, stderr)
}

// respond prints the result of f or, if f fails or panics, an error of CNI, and returns the exit status.
func respond(f func() ([]byte, error), stdout, stderr io.Writer) int {
	output, err := protect(f, stderr)
	if err != nil {
		if err := writeError(stdout, cniError(err)); err != nil {
			fmt.Fprintln(stderr, "capture-cni:", err)
		}
		return 1
	}
	if _, err := stdout.Write(output); err != nil {
		fmt.Fprintln(stderr, "capture-cni: writing the result:", err)
		return 1
	}
	return 0
}

// protect returns the result of f. If f panics, protect writes the stack to stderr, and returns an error.
func protect(f func() ([]byte, error), stderr io.Writer) (output []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			fmt.Fprintf(stderr, "%s\n", debug.Stack())
			output, err = nil, fmt.Errorf("panic: %v", p)
		}
	}()
	return f()
}

// call calls the function of the verb command. It does not use the CNI library skel for DEL, because
// skel returns errors for invalid input, and a failing DEL blocks the pod's deletion.
func call(command string, stderr io.Writer) ([]byte, error) {
	switch command {
	case "DEL":
		_, _ = protect(func() ([]byte, error) {
			del(os.Getenv("CNI_NETNS"), slog.New(slog.NewTextHandler(stderr, nil)))
			return nil, nil
		}, stderr)
		return nil, nil
	case "VERSION":
		return versions()
	}
	var output []byte
	// On success, skel returns a nil pointer of type *types.Error. As an error, it would not equal nil, so
	// call does not return it.
	if err := skel.PluginMainFuncsWithError(skel.CNIFuncs{
		Add:    func(args *skel.CmdArgs) (err error) { output, err = realPlugin.Add(args, stderr); return withCode(err) },
		Check:  func(args *skel.CmdArgs) error { return withCode(check(args, stderr)) },
		Status: func(args *skel.CmdArgs) error { return withCode(status(args)) },
		GC:     func(*skel.CmdArgs) error { return nil }, // the kernel deletes rules with their namespace
	}, supported(), "CNI plugin capture-cni "+config.OwnVersion()); err != nil {
		return nil, err
	}
	return output, nil
}

// supported returns the versions of the CNI specification in which a runtime chains plugins.
func supported() version.PluginInfo { return version.VersionsStartingFrom("0.3.0") }

func versions() ([]byte, error) {
	var out bytes.Buffer
	err := supported().Encode(&out)
	return out.Bytes(), err
}

func writeError(w io.Writer, e *types.Error) error {
	document, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the error: %w", err)
	}
	if _, err := w.Write(append(document, '\n')); err != nil {
		return fmt.Errorf("writing the error: %w", err)
	}
	return nil
}
