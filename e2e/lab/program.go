// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"fmt"
	"os/exec"
)

// WriteProgram writes an executable by another process. If this process opened the file for writing, a
// child process between fork and exec would have a copy of the open file, and the kernel executes no
// file that is open for writing.
func WriteProgram(path string, content []byte) error {
	command := exec.Command("sh", "-c", `cat > "$0" && chmod 0755 "$0"`, path)
	command.Stdin = bytes.NewReader(content)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("writing %s: %w: %s", path, err, out)
	}
	return nil
}
