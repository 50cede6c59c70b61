// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"errors"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// digestAt returns a digest of the capture rules in a network namespace, "" if there are
// none. Pods that one release captured with the same annotations have the same digest.
func digestAt(ctx context.Context, path string) (digest string, err error) {
	netns, err := podnet.Open(ctx, path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, netns.Close()) }()
	found, err := kernel.Observe(ctx, netns, kernel.Question{})
	if err != nil || found.Backend == "" {
		return "", err
	}
	return found.Digest, found.RulesFault
}

// Digest returns a digest of the capture rules of a pod, "" if there are none.
func (n Namespace) Digest(t *testing.T, pod string) string {
	t.Helper()
	sandbox, err := n.Sandbox(t.Context(), pod)
	lab.Check(t, err)
	digest, err := digestAt(t.Context(), sandbox.Path())
	lab.Check(t, err)
	return digest
}
