// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"
)

func TestContainerMemory(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		file, content string
		want          int64
	}{
		"version 2":           {"memory.max", "134217728\n", 128 << 20},
		"version 2, no limit": {"memory.max", "max\n", math.MaxInt64},
		"version 1":           {"memory/memory.limit_in_bytes", "134217728\n", 128 << 20},
		"version 1, no limit": {"memory/memory.limit_in_bytes", "9223372036854771712\n", 9223372036854771712},
		"neither":             {"cpu.max", "max 100000\n", math.MaxInt64},
		"malformed":           {"memory.max", "128Mi\n", math.MaxInt64},
	} {
		root := t.TempDir()
		path := filepath.Join(root, tt.file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(tt.content), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := containerMemory(root); got != tt.want {
			t.Errorf("%s: got %d, want %d", name, got, tt.want)
		}
	}
}

// TestLimitMemory limits Go's memory to half of the container's, unless the operator has
// set another limit.
func TestLimitMemory(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	root := t.TempDir()
	if err := os.WriteFile(root+"/memory.max", []byte("134217728\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for variable, want := range map[string]int64{"100MiB": before, "": 64 << 20} {
		t.Setenv("GOMEMLIMIT", variable)
		debug.SetMemoryLimit(before)
		limitMemory(root)
		if got := debug.SetMemoryLimit(-1); got != want {
			t.Errorf("GOMEMLIMIT=%s: the limit is %d, want %d", variable, got, want)
		}
	}
}
