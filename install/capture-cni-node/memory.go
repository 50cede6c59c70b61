// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
)

// limitMemory limits Go's memory to half of the container's memory limit, unless GOMEMLIMIT is set. The
// other half is for the program's pages and the kernel's memory for the process, which Go does not
// count. root is the path at which the container's cgroup is mounted.
func limitMemory(root string) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(containerMemory(root) / 2)
	}
}

// containerMemory returns the memory limit of a cgroup of version 2 or 1 in bytes, or the largest
// number if there is no limit.
func containerMemory(root string) int64 {
	for _, file := range []string{"memory.max", "memory/memory.limit_in_bytes"} {
		content, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			continue
		}
		if limit, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64); err == nil && limit > 0 {
			return limit
		}
	}
	return math.MaxInt64
}
