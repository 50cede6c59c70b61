// SPDX-License-Identifier: Apache-2.0

// Command peak runs a program and prints its peak memory in KiB on stdout.
// It is small on purpose: a child inherits its parent's peak, and the benchmark's
// would hide the plugin's.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

func main() {
	command := exec.Command(os.Args[1], os.Args[2:]...)
	command.Stdin, command.Stderr = os.Stdin, os.Stderr
	if err := command.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "peak:", err)
		os.Exit(1)
	}
	fmt.Println(command.ProcessState.SysUsage().(*syscall.Rusage).Maxrss)
}
