// SPDX-License-Identifier: Apache-2.0

// Command capture-cni is the CNI plugin: called last in a chain while a pod's
// network is set up, it installs the rules that hand the pod's traffic to its
// sidecar proxy. A pod outside the mesh costs it no API call and no rule.
package main

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/verbs"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println("capture-cni", config.OwnVersion())
		return
	}
	stdout, err := claimStdout()
	if err != nil {
		fmt.Fprintln(os.Stderr, "capture-cni:", err)
		os.Exit(1)
	}
	os.Exit(verbs.Run(os.Getenv("CNI_COMMAND"), stdout, os.Stderr))
}

// claimStdout keeps the protocol's stdout for the answer alone: whatever else in this
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
