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

// limitMemory keeps Go's memory to half of what the container may use, unless
// GOMEMLIMIT says otherwise. The other half is for what Go does not count: the
// program's own pages, and what the kernel keeps for the process.
func limitMemory() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(containerMemory("/sys/fs/cgroup") / 2)
	}
}

// containerMemory returns the limit in bytes, as a container finds it at the
// root of its cgroup file system, version 2 or 1.
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
