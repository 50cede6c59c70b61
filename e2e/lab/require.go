// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"testing"
)

// RequireRoot skips a test that needs root on somebody's laptop, and fails it
// in CI, where a skipped test would look like a passed one.
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
