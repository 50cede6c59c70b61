// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// iptables is the Backend of the host's own iptables, of one variant for both
// families. Its programs are all that this project ever executes.
type iptables struct{ programs map[capture.Family]programs }

// families in the order in which rules are added: IPv4's nat table, committed
// last, tells by its stamp that everything is there.
var families = []capture.Family{capture.IPv6, capture.IPv4}

func findIPTables(ctx context.Context, asked config.Backend) (Backend, error) {
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

// Name is config.IPTablesNFT or config.IPTablesLegacy.
func (b iptables) Name() config.Backend { return b.programs[capture.IPv4].variant }

// Apply adds one family after the other. iptables commits table by table, so
// that an error can leave some behind: undo is for them.
func (b iptables) Apply(ctx context.Context, rs capture.Ruleset) error {
	existing, err := listTables(ctx, b.Name())
	if err != nil {
		return err
	}
	saved, err := b.save(ctx, rs, existing)
	if err != nil {
		return err
	}
	for i, family := range familiesOf(rs) {
		notes := createdFor(rs, family, b.Name(), existing)
		if err := b.restore(ctx, family, restoreText(rs, family, notes), "--noflush"); err != nil {
			return errors.Join(err, b.undo(familiesOf(rs)[:i+1], saved))
		}
	}
	return nil
}

func familiesOf(rs capture.Ruleset) []capture.Family {
	return slices.DeleteFunc(slices.Clone(families), func(f capture.Family) bool { return f == capture.IPv6 && !rs.IPv6 })
}

// save gives, as text for restore, what each family has in the tables that the
// rules are for. Only the older variant needs it: from the newer one's tables,
// the kernel takes exactly our rules out again in one transaction.
func (b iptables) save(ctx context.Context, rs capture.Ruleset, existing tableList) (map[capture.Family]string, error) {
	saved := map[capture.Family]string{}
	if b.Name() != config.IPTablesLegacy {
		return saved, nil
	}
	for _, family := range familiesOf(rs) {
		var out []byte
		if existing.has(family) { // else no program is needed to find nothing
			var err error
			if out, err = run(ctx, nil, b.programs[family].save, "--counters"); err != nil {
				return nil, err
			}
		}
		saved[family] = onlyTables(string(out), tablesOf(rs))
	}
	return saved, nil
}

// restoreWait is how long iptables' older variant may wait for its lock.
const restoreWait = "--wait=10"

func (b iptables) restore(ctx context.Context, family capture.Family, rules string, options ...string) error {
	p := b.programs[family]
	if p.wait {
		options = append(options, restoreWait)
	}
	return runWithoutNameServices(ctx, []byte(rules), p.restore, options...)
}

// undoTimeout bounds what comes after a failure, be it that of a deadline.
const undoTimeout = 10 * time.Second

// undo takes back what was committed of those families that were tried.
func (b iptables) undo(tried []capture.Family, saved map[capture.Family]string) error {
	ctx, cancel := context.WithTimeout(context.Background(), undoTimeout)
	defer cancel()
	if b.Name() != config.IPTablesLegacy {
		return removeFromNFTables(ctx)
	}
	var errs []error
	for _, family := range tried {
		if err := b.restore(ctx, family, saved[family], "--counters"); err != nil {
			errs = append(errs, fmt.Errorf("putting the saved %s rules back: %w", family, err))
		}
	}
	return errors.Join(errs...)
}

// Dump reads our chains, and those rules of the built-in ones that lead into
// ours. The newer variant's are read from the kernel: beside rules that nft
// wrote, its programs would not list them.
func (b iptables) Dump(ctx context.Context) (Dump, error) {
	if b.Name() == config.IPTablesLegacy {
		return b.dumpSaved(ctx)
	}
	return dumpFromNFTables(ctx)
}
