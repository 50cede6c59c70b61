// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// iptables is the Backend of the host's own iptables, of one variant for both
// families. Its programs are all that this project ever executes.
type iptables struct{ programs map[capture.Family]programs }

// families in the order in which rules are added: IPv4's nat table, committed
// last, tells by its stamp that everything is there.
var families = []capture.Family{capture.IPv6, capture.IPv4}

func findIPTables(ctx context.Context, asked capture.Backend) (Backend, error) {
	b := iptables{map[capture.Family]programs{}}
	for _, family := range families {
		p, err := findPrograms(ctx, family, asked)
		if err != nil {
			return nil, err
		}
		b.programs[family] = p
	}
	if four, six := b.programs[capture.IPv4].variant, b.programs[capture.IPv6].variant; four != six {
		return nil, capture.Refusal(fmt.Sprintf("backend %q: iptables is %s but ip6tables is %s: make them one variant, or name one", asked, four, six))
	}
	return b, nil
}

// Name is capture.IPTablesNFT or capture.IPTablesLegacy.
func (b iptables) Name() capture.Backend { return b.programs[capture.IPv4].variant }

// Apply adds one family after the other. iptables commits table by table, so
// that what was saved before is what an error leads back to.
func (b iptables) Apply(ctx context.Context, rs capture.Ruleset) (err error) {
	existing, err := listTables(b.Name())
	if err != nil {
		return err
	}
	saved := map[capture.Family][]byte{}
	for _, family := range familiesOf(rs) {
		if saved[family], err = b.save(ctx, family, existing); err != nil {
			return err
		}
	}
	for _, family := range familiesOf(rs) {
		made := existing.missing(rs, family, b.Name())
		if err := b.restore(ctx, family, []byte(rs.IPTables(family, made)), "--noflush"); err != nil {
			return errors.Join(err, b.undo(rs, saved))
		}
	}
	return nil
}

// Dump reads our chains, and those rules of the built-in ones that lead into
// ours. The newer variant's are read from the kernel: beside rules that nft
// wrote, its programs would not list them.
func (b iptables) Dump(ctx context.Context) (Table, error) {
	if b.Name() == capture.IPTablesLegacy {
		return b.dumpSaved(ctx)
	}
	return dumpFromNFTables()
}

func familiesOf(rs capture.Ruleset) []capture.Family {
	return slices.DeleteFunc(slices.Clone(families), func(f capture.Family) bool { return f == capture.IPv6 && !rs.IPv6 })
}

// save gives a family's rules with their counters. Where it has no table, no
// program is needed to find nothing.
func (b iptables) save(ctx context.Context, family capture.Family, existing tableList) ([]byte, error) {
	if !existing.has(family) {
		return nil, nil
	}
	return run(ctx, nil, b.programs[family].save, "--counters")
}

// undoTimeout bounds what comes after a failure, be it that of a deadline.
const undoTimeout = 10 * time.Second

// restoreWait is how long iptables' legacy variant may wait for its lock.
const restoreWait = "--wait=10"

func (b iptables) restore(ctx context.Context, family capture.Family, rules []byte, options ...string) error {
	p := b.programs[family]
	if p.wait {
		options = append(options, restoreWait)
	}
	return runWithoutNameServices(ctx, rules, p.restore, options...)
}

// undo takes back what was committed. Taking out what is ours leaves others'
// rules alone; where even that fails, what was saved is put in place again.
func (b iptables) undo(rs capture.Ruleset, saved map[capture.Family][]byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), undoTimeout)
	defer cancel()
	err := b.remove(ctx)
	if err == nil {
		return nil
	}
	errs := []error{fmt.Errorf("taking the rules out again: %w", err)}
	for _, family := range familiesOf(rs) {
		if len(saved[family]) > 0 {
			errs = append(errs, b.restore(ctx, family, saved[family], "--counters"))
		}
	}
	return errors.Join(errs...)
}
