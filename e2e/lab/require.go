// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"testing"
)

// RequireTime skips a slow test with -short, and fails it in CI, like RequireRoot.
func RequireTime(t testing.TB) {
	t.Helper()
	if !testing.Short() {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("this test needs time: run it without -short")
	}
	t.Skip("this test takes long")
}

// RequireRoot skips a test that needs root where the user is not root, and fails
// it in CI, where a skipped test would look like a passed one.
func RequireRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("this test needs root")
	}
	t.Skip("this test needs root")
}
