// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/iptables"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
	"github.com/capture-cni/capture-cni/plugin/nftables"
)

// replaceRules removes rules of ours, of any backend, and applies the Ruleset. For
// rules in nf_tables both are one transaction: every packet meets the old rules or
// the new ones, and redirected connections stay translated.
func replaceRules(ctx context.Context, rs capture.Ruleset) error {
	if err := iptables.RemoveLegacy(ctx); err != nil {
		return err
	}
	before, err := nfnetlink.TableHandle(ctx, capture.TableName)
	if err != nil {
		return err
	}
	b := nfnetlink.NewBatch()
	if err := netfilter.QueueRemoval(ctx, b); err != nil {
		return err
	}
	return nftables.Commit(ctx, b, rs, before)
}
