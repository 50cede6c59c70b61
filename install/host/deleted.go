// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"syscall"
)

// IsDeleted reports whether a directory was deleted while something keeps it at the
// path, as a container's mount does.
func IsDeleted(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	at, ok := info.Sys().(*syscall.Stat_t)
	return ok && at.Nlink == 0
}
