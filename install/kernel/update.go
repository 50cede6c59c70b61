// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// Update applies the Ruleset in place of complete rules of ours, of any backend. It leaves
// conntrack alone, so that open connections keep what nat decided about them. It changes nothing
// unless a process listens at each of the proxy's ports: an operator may have changed the ports
// for pods that start later.
func Update(ctx context.Context, n *podnet.Namespace, rs capture.Ruleset, ports ...uint16) error {
	return n.Do(func() error {
		var listening []uint16
		for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
			found, _, err := dumpEntries(ctx, unix.NETLINK_SOCK_DIAG, unix.SOCK_DIAG_BY_FAMILY,
				socketRequest(family, 1<<Listening), maxSockets, parseSocket)
			if err != nil {
				return fmt.Errorf("listing the pod's listening sockets: %w", err)
			}
			for _, s := range found {
				listening = append(listening, s.Local.Port())
			}
		}
		for _, port := range ports {
			if port != 0 && !slices.Contains(listening, port) {
				return fmt.Errorf("no process of the pod listens at the proxy's port %d", port)
			}
		}
		return replaceRules(ctx, rs)
	})
}
