// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"os/exec"
)

// Cut is the moment at which a program is killed: before its main thread makes the system call Call for
// the nth time. The zero Cut kills no program.
type Cut struct {
	Call string
	Nth  int
}

// FileChanges returns the system calls by which Go's os package changes files. It omits the calls that
// create or fill a file, because a kill at the later fchmod or fsync leaves the same partial file.
func FileChanges() []string {
	return []string{"mkdirat", "fchmod", "fchown", "fsync", "linkat", "renameat", "unlinkat"}
}

// Command returns a command that runs a program under strace, which kills the program at the Cut. The
// program must make the system call on its main thread, for example in a function init.
func (c Cut) Command(program string, args ...string) *exec.Cmd {
	if c.Nth == 0 {
		return exec.Command(program, args...)
	}
	inject := fmt.Sprintf("inject=%s:error=EIO:signal=SIGKILL:when=%d", c.Call, c.Nth)
	return exec.Command("strace", append([]string{"-qq", "-o", "/dev/null", "-e", "trace=" + c.Call, "-e", inject, program}, args...)...)
}

func (c Cut) String() string { return fmt.Sprintf("killed before %s %d", c.Call, c.Nth) }
