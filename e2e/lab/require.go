// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Lacks skips a test that needs something which is not available. With CI=true, which `make test` sets
// for root, the test fails instead, because a skipped test looks like a passed one.
func Lacks(t testing.TB, what string) {
	t.Helper()
	uncached()
	if os.Getenv("CI") == "true" {
		t.Fatal("this test needs " + what)
	}
	t.Skip("this test needs " + what)
}

// uncached prevents go test from using a cached result, because the cache does not depend on the
// machine's kernel and programs. The Makefile sets RUN to a new value each time.
func uncached() { _ = os.Getenv("RUN") }

// RequireTime skips a slow test under -short, as Lacks does.
func RequireTime(t testing.TB) {
	t.Helper()
	uncached()
	if testing.Short() {
		Lacks(t, "time: run it without -short")
	}
}

// RequireRoot skips a test, as Lacks does, if the user is not root.
func RequireRoot(t testing.TB) {
	t.Helper()
	uncached()
	if os.Geteuid() != 0 {
		Lacks(t, "root")
	}
}

// RequireProgram skips a test, as Lacks does, if a program is not installed.
func RequireProgram(t testing.TB, name string) {
	t.Helper()
	uncached()
	if _, err := exec.LookPath(name); err != nil {
		Lacks(t, name+": run make deps")
	}
}

// RequireHistory skips a test that needs git's history if the sources are no git checkout, even with
// CI=true. In a checkout, the test then fails if a commit is missing.
func RequireHistory(t testing.TB, root string) {
	t.Helper()
	uncached()
	if _, err := os.Stat(filepath.Join(root, ".git")); errors.Is(err, os.ErrNotExist) {
		t.Skip("this test needs earlier releases, which are built from git's history, and these sources are no git checkout")
	}
}

// SkipGone skips a test because Debian's mirror no longer has an old release. It does so even with
// CI=true, because no change of the project causes that. `make test` prints such skips.
func SkipGone(t testing.TB, err error) {
	t.Helper()
	t.Skip("NOT TESTED:", err)
}
