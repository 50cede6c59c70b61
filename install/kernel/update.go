// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"
	"slices"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// Update applies the Ruleset in place of complete rules of ours, of any backend. It leaves
// conntrack alone, so that open connections keep what nat decided about them. It changes nothing
// unless the proxy listens at its ports with its uid, and by IPv6 if that is captured: an operator
// may have changed these for pods that start later.
func Update(ctx context.Context, n *podnet.Namespace, in capture.Intent) error {
	return n.Do(func() error {
		sockets, _, err := socketsIn(ctx, 1<<Listening, maxSockets)
		if err != nil {
			return err
		}
		ports := []uint16{in.InboundPort, in.OutboundPort}
		if in.CaptureDNS {
			ports = append(ports, in.DNSPort)
		}
		for _, port := range ports {
			isProxys := func(s Socket) bool {
				return s.Local.Port() == port && hasUID(s, in.ProxyUID) && (s.IPv6 || in.IPv6 != capture.Captured)
			}
			if port != 0 && !slices.ContainsFunc(sockets, isProxys) {
				return fmt.Errorf("no process of the pod with uid %d listens at the proxy's port %d by each captured family", in.ProxyUID, port)
			}
		}
		return replaceRules(ctx, capture.Rules(in))
	})
}

// hasUID reports whether a socket may be that of a uid. A proxy can listen as root. The kernel reports
// the node's uids, and Kubernetes gives a pod that has a user namespace 65,536 of them.
func hasUID(s Socket, uid uint32) bool {
	const mapped = 1 << 16
	return s.UID == uid || s.UID == 0 || s.UID >= mapped && s.UID%mapped == uid%mapped
}
