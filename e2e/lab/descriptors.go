// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"testing"

	"golang.org/x/sys/unix"
)

// WithoutDescriptors runs f while this process can open no file and no socket. The test must not run in
// parallel with other tests.
func WithoutDescriptors(t *testing.T, f func()) {
	t.Helper()
	var limit unix.Rlimit
	Check(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	Check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: limit.Max}))
	defer func() { Check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)) }()
	f()
}
