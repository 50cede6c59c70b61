// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os/exec"
)

// Cut is the moment at which a program is killed: before its main thread makes a
// system call for the nth time. The zero Cut kills nothing.
type Cut struct {
	Call string
	Nth  int
}

// FileChanges are the system calls by which Go's os package changes files, but for
// those that create or fill a file: one that is not finished is cut at its fchmod or
// fsync.
func FileChanges() []string {
	return []string{"mkdirat", "fchmod", "fchown", "fsync", "linkat", "renameat", "unlinkat"}
}

// Command runs a program under strace, which kills it. What the program does has to
// stay on its main thread, as in a function init.
func (c Cut) Command(program string, args ...string) *exec.Cmd {
	if c.Nth == 0 {
		return exec.Command(program, args...)
	}
	inject := fmt.Sprintf("inject=%s:error=EIO:signal=SIGKILL:when=%d", c.Call, c.Nth)
	return exec.Command("strace", append([]string{"-qq", "-o", "/dev/null", "-e", "trace=" + c.Call, "-e", inject, program}, args...)...)
}

func (c Cut) String() string { return fmt.Sprintf("killed before %s %d", c.Call, c.Nth) }
