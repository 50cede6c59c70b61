// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// Update replaces complete rules of ours, of any backend, by the Intent's rules in nftables. It does
// not change conntrack, so nat's decisions about open connections stay. But if the pod gets a fence,
// Update resets all connections, because no fence has judged their beginnings. It takes a fence of
// iptables-legacy for none. If no process with the proxy's or root's uid listens at one of the ports to
// which the rules lead TCP, or none does by IPv6 although the rules capture IPv6, Update changes nothing
// and returns an error, because an operator may have changed ports or uid for pods that start later. It
// does not examine ports that get only UDP, as Kuma's for DNS, because Sockets lists only TCP sockets.
func Update(ctx context.Context, n *podnet.Namespace, in capture.Intent) error {
	return n.Do(func() error {
		sockets, _, err := socketsIn(ctx, 1<<Listening, maxSockets)
		if err != nil {
			return err
		}
		rules := capture.Rules(in)
		for _, chain := range rules.Chains {
			for _, r := range chain.Rules {
				isProxys := func(s Socket) bool {
					return s.Local.Port() == r.Do.Port && hasUID(s, in.ProxyUID) && (s.IPv6 || in.IPv6 != capture.Captured)
				}
				if r.Do.Port != 0 && r.Match.Protocol != capture.UDP && !slices.ContainsFunc(sockets, isProxys) {
					return fmt.Errorf("no process of the pod with uid %d or 0 listens by TCP at the proxy's port %d for each captured family",
						in.ProxyUID, r.Do.Port)
				}
			}
		}
		fenced, err := isFenced(ctx)
		if err == nil {
			err = replaceRules(ctx, rules)
		}
		if err == nil && rules.HasFence() && !fenced {
			err = FlushEntries(context.WithoutCancel(ctx)) // the rules may have taken all of the caller's time
		}
		return err
	})
}

// isFenced reports whether nf_tables contains rules of a fence.
func isFenced(ctx context.Context) (bool, error) {
	r, err := nfnetlink.NewReader(ctx)
	if err != nil {
		return false, err
	}
	defer r.Close()
	chains, err := nfnetlink.ListChains(r)
	return slices.ContainsFunc(chains, func(c nfnetlink.ChainName) bool { return strings.HasSuffix(c.Name, capture.ChainFence) }), err
}

// hasUID reports whether a socket may belong to a uid. It accepts sockets of the node's root, because a
// proxy can open its sockets as root. It also accepts the node's uid for this uid in a pod with a user
// namespace, because the kernel reports the node's uids. The uids that Kubernetes maps for such a pod
// begin at a multiple of 65,536, so both uids have the same remainder.
func hasUID(s Socket, uid uint32) bool {
	const mapped = 1 << 16
	return s.UID == uid || s.UID == 0 || s.UID >= mapped && s.UID%mapped == uid%mapped
}
