// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	goiptables "github.com/coreos/go-iptables/iptables"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// lockWait is how many seconds each program may wait for its lock. Programs
// before iptables 1.8.6 know no other lock than the node's.
const lockWait = 1

// removeLegacy takes out what iptables' older variant put in. The tables
// themselves stay: the kernel has no way to take them away.
func removeLegacy(ctx context.Context) error {
	tables, err := legacyTables()
	if err != nil {
		return err
	}
	// The library's programs have this process's environment and no other.
	if err := os.Setenv(lockVariable, privateLock); err != nil {
		return fmt.Errorf("setting %s: %w", lockVariable, err)
	}
	var errs []error
	for table, chains := range tables {
		if slices.Contains(chains, capture.MarkerChain) {
			errs = append(errs, removeLegacyTable(ctx, table))
		}
	}
	return errors.Join(errs...)
}

func removeLegacyTable(ctx context.Context, table tableOf) error {
	host, err := findPrograms(ctx, table.family, capture.IPTablesLegacy)
	if err != nil {
		return err
	}
	protocol := goiptables.ProtocolIPv4
	if table.family == capture.IPv6 {
		protocol = goiptables.ProtocolIPv6
	}
	command, err := goiptables.New(goiptables.IPFamily(protocol), goiptables.Timeout(lockWait),
		goiptables.Path(strings.TrimSuffix(host.save, "-save")))
	if err != nil {
		return fmt.Errorf("looking at %s: %w", host.save, err)
	}
	r := legacyRemoval{ctx, command, table.name}
	return r.run()
}

// legacyRemoval takes our chains out of one table, rule by rule. The library
// knows no deadline, so that one is looked at before each of its programs.
type legacyRemoval struct {
	ctx     context.Context
	command *goiptables.IPTables
	table   string
}

// run goes from what leads into our chains to the marker, so that whatever is
// left by a failure is still known for ours.
func (r legacyRemoval) run() error {
	chains, err := inTime(r.ctx, func() ([]string, error) { return r.command.ListChains(r.table) })
	if err != nil {
		return fmt.Errorf("listing the chains of table %s: %w", r.table, err)
	}
	var ours []string
	for _, chain := range chains {
		if isOurs(chain) {
			ours = append(ours, chain)
		} else if err := r.deleteJumps(chain); err != nil {
			return err
		}
	}
	slices.SortFunc(ours, func(a, b string) int { return strings.Compare(b, a) }) // the marker comes last
	for _, step := range []func(table, chain string) error{r.command.ClearChain, r.command.DeleteChain} {
		for _, chain := range ours {
			if err := r.change(func() error { return step(r.table, chain) }); err != nil {
				return fmt.Errorf("deleting chain %s of table %s: %w", chain, r.table, err)
			}
		}
	}
	return nil
}

// deleteJumps deletes, from the last to the first, the rules of somebody else's
// chain that lead into ours.
func (r legacyRemoval) deleteJumps(chain string) error {
	lines, err := inTime(r.ctx, func() ([]string, error) { return r.command.List(r.table, chain) })
	if err != nil {
		return fmt.Errorf("listing chain %s of table %s: %w", chain, r.table, err)
	}
	// The first line is the chain itself, so that a line's index is its rule's number.
	for number, line := range slices.Backward(lines) {
		if rule := (savedRule{chain, line}); number == 0 || !rule.leadsToOurs() {
			continue
		}
		if err := r.change(func() error { return r.command.DeleteById(r.table, chain, number) }); err != nil {
			return fmt.Errorf("deleting rule %d of chain %s of table %s: %w", number, chain, r.table, err)
		}
	}
	return nil
}

func (r legacyRemoval) change(step func() error) error {
	_, err := inTime(r.ctx, func() (struct{}, error) { return struct{}{}, step() })
	return err
}

// inTime does what still may be done.
func inTime[T any](ctx context.Context, do func() (T, error)) (T, error) {
	if err := ctx.Err(); err != nil {
		var none T
		return none, err
	}
	return do()
}
