// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Lacks skips a test that lacks something. `make test` and CI set CI=true: there the test
// fails, because a skipped test looks like a passed one.
func Lacks(t testing.TB, what string) {
	t.Helper()
	uncached()
	if os.Getenv("CI") == "true" {
		t.Fatal("this test needs " + what)
	}
	t.Skip("this test needs " + what)
}

// uncached keeps go test from answering out of its cache, which knows neither the kernel nor
// the programs of the machine: the Makefile gives RUN another value each time.
func uncached() { _ = os.Getenv("RUN") }

// RequireTime skips a slow test with -short, as Lacks does.
func RequireTime(t testing.TB) {
	t.Helper()
	uncached()
	if testing.Short() {
		Lacks(t, "time: run it without -short")
	}
}

// RequireRoot skips a test that needs root where the user is not root, as Lacks does.
func RequireRoot(t testing.TB) {
	t.Helper()
	uncached()
	if os.Geteuid() != 0 {
		Lacks(t, "root")
	}
}

// RequireProgram skips a test where a program is not installed, as Lacks does.
func RequireProgram(t testing.TB, name string) {
	t.Helper()
	uncached()
	if _, err := exec.LookPath(name); err != nil {
		Lacks(t, name+": run make deps")
	}
}

// RequireHistory skips a test that needs git's history where the sources are no checkout,
// in CI, too: an archive of them has none. A checkout without the commit fails.
func RequireHistory(t testing.TB, root string) {
	t.Helper()
	uncached()
	if _, err := os.Stat(filepath.Join(root, ".git")); errors.Is(err, os.ErrNotExist) {
		t.Skip("this test needs earlier releases, which are built from git's history, and these sources are no git checkout")
	}
}

// SkipGone skips a test of an old release that Debian's mirror no longer has, in CI, too:
// that is no fault of a change. make test prints such skips.
func SkipGone(t testing.TB, err error) {
	t.Helper()
	t.Skip("NOT TESTED:", err)
}
