// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"syscall"
)

// WriteProgram writes an executable file. The kernel executes no file that is open for writing, and a
// child process that another goroutine starts meanwhile would have the file open until its exec, so no
// process is started meanwhile.
func WriteProgram(path string, content []byte) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	return os.WriteFile(path, content, 0o755)
}
