// SPDX-License-Identifier: Apache-2.0

// Command capture-cni is a chained CNI plugin. It runs after the plugins that set up a pod's
// interfaces, and installs the rules that redirect the pod's traffic to its sidecar proxy. For
// pods outside the mesh it installs no rules.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/verbs"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println("capture-cni", config.OwnVersion())
		return
	}
	// Most calls take milliseconds, and their steps follow each other. More processors would only make this
	// process move between them.
	runtime.GOMAXPROCS(1)
	stdout, err := claimStdout()
	if err != nil {
		fmt.Fprintln(os.Stderr, "capture-cni:", err)
		os.Exit(1)
	}
	os.Exit(verbs.Run(os.Getenv("CNI_COMMAND"), stdout, os.Stderr))
}

// claimStdout returns the stdout from which the runtime reads the result, and redirects file descriptor
// 1 to stderr for everything else that this process writes.
func claimStdout() (*os.File, error) {
	fd, err := unix.FcntlInt(1, unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, fmt.Errorf("duplicating stdout: %w", err)
	}
	if err := unix.Dup3(2, 1, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("redirecting stdout to stderr: %w", err), unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "stdout"), nil
}
