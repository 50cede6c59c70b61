// SPDX-License-Identifier: Apache-2.0

// Command apparmor loads containerd's default profile, as containerd does when it starts
// the first container.
package main

import (
	"fmt"
	"os"

	"github.com/containerd/containerd/v2/contrib/apparmor"
)

func main() {
	if err := apparmor.LoadDefaultProfile(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
