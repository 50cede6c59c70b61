// SPDX-License-Identifier: Apache-2.0

// Package kernel is a pod's network namespace as the guard sees it: what has changed in
// it, whether it still holds the rules, what else could decide about its packets, and how
// rules are put back around connections that are open.
package kernel

import (
	"context"

	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// TryOpen is podnet.Open that does not wait for the lock.
func TryOpen(path string) (*podnet.Namespace, error) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	return podnet.Open(ended, path)
}
