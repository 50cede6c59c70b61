// SPDX-License-Identifier: Apache-2.0

// Package iptables is the backend for both variants of iptables. It writes rules with the host's programs
// of one variant. It reads and removes the rules of iptables-nft in nf_tables, without these programs.
package iptables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/dump"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
	"github.com/capture-cni/capture-cni/plugin/xtables"
)

// Backend writes rules with the host's own iptables, of the same variant for both families.
type Backend struct{ programs map[capture.Family]programs }

// families is the order in which the rules are added. IPv4 is last, because the stamp in its nat table
// proves that all rules are complete.
var families = []capture.Family{capture.IPv6, capture.IPv4}

// Find returns the backend with the programs of the variant asked or, for config.IPTables, of the variant
// of the programs with plain names. root is the host's file system, or "" for this process's own. Errors:
// a capture.Refusal if the host lacks the programs, or has different variants for IPv4 and IPv6.
func Find(ctx context.Context, root string, asked config.Backend) (Backend, error) {
	b := Backend{map[capture.Family]programs{}}
	for _, family := range families {
		p, err := findPrograms(ctx, root, family, asked)
		if err != nil {
			return Backend{}, err
		}
		b.programs[family] = p
	}
	if four, six := b.programs[capture.IPv4].variant, b.programs[capture.IPv6].variant; four != six {
		return Backend{}, capture.Refusal(fmt.Sprintf("backend %q: iptables is %s but ip6tables is %s: "+
			"install one variant, or configure backend iptables-nft or iptables-legacy", asked, four, six))
	}
	return b, nil
}

// Name returns config.IPTablesNFT or config.IPTablesLegacy.
func (b Backend) Name() config.Backend { return b.programs[capture.IPv4].variant }

// Apply adds the rules of one family after the other. iptables commits each table separately, so after
// an error Apply removes what was committed.
func (b Backend) Apply(ctx context.Context, rs capture.Ruleset) error {
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
		if err := b.restore(ctx, family, RestoreText(rs, family, notes), "--noflush"); err != nil {
			if _, lacks := errors.AsType[nfnetlink.Lacking](err); lacks && family == capture.IPv6 {
				err = NoIPv6{err}
			}
			return errors.Join(err, b.undo(familiesOf(rs)[:i+1], saved))
		}
	}
	return nil
}

// NoIPv6 is the error for a kernel that lacks a module that iptables needs for IPv6.
type NoIPv6 struct{ error }

// Unwrap returns the error that names the modules.
func (n NoIPv6) Unwrap() error { return n.error }

func familiesOf(rs capture.Ruleset) []capture.Family {
	return slices.DeleteFunc(slices.Clone(families), func(f capture.Family) bool {
		return len(rs.For(f).Chains) == 0 || f == capture.IPv6 && ipv6SwitchedOff()
	})
}

// ipv6SwitchedOff reports whether the kernel was booted without IPv6 (ipv6.disable=1). Then no
// namespace can send IPv6 packets, and the kernel refuses the tables of ip6tables-legacy.
func ipv6SwitchedOff() bool {
	disabled, err := os.ReadFile("/sys/module/ipv6/parameters/disable")
	return err == nil && strings.TrimSpace(string(disabled)) == "1"
}

// save returns, for each family, the content of the tables that the rules use, as input for
// iptables-restore. Only iptables-legacy needs this content, because undo removes the rules of
// iptables-nft from nf_tables in one transaction.
func (b Backend) save(ctx context.Context, rs capture.Ruleset, existing xtables.Tables) (map[capture.Family]string, error) {
	saved := map[capture.Family]string{}
	if b.Name() != config.IPTablesLegacy {
		return saved, nil
	}
	for _, family := range familiesOf(rs) {
		var out []byte
		exist := slices.ContainsFunc(slices.Collect(maps.Keys(existing)), func(t xtables.Table) bool { return t.Family == family })
		if exist { // otherwise there is nothing to save
			var err error
			if out, err = run(ctx, b.programs[family].root, nil, b.programs[family].save, "--counters"); err != nil {
				return nil, err
			}
		}
		saved[family] = onlyTables(string(out), tablesOf(rs.For(family)))
	}
	return saved, nil
}

// restoreWait makes iptables-restore wait at most 10 seconds for the lock of iptables-legacy.
const restoreWait = "--wait=10"

func (b Backend) restore(ctx context.Context, family capture.Family, rules string, options ...string) error {
	p := b.programs[family]
	if p.wait {
		options = append(options, restoreWait)
	}
	return runWithoutNameServices(ctx, p.root, []byte(rules), p.restore, options...)
}

// undoTimeout limits undo, which also runs if the context has ended.
const undoTimeout = 10 * time.Second

// undo removes the rules that were committed. With iptables-legacy, it restores the saved tables of the
// families in tried.
func (b Backend) undo(tried []capture.Family, saved map[capture.Family]string) error {
	ctx, cancel := context.WithTimeout(context.Background(), undoTimeout)
	defer cancel()
	if b.Name() != config.IPTablesLegacy {
		return nfnetlink.Remove(ctx, QueueRemoval)
	}
	var errs []error
	for _, family := range tried {
		if err := b.restore(ctx, family, saved[family], "--counters"); err != nil {
			errs = append(errs, fmt.Errorf("restoring the saved %s rules: %w", family, err))
		}
	}
	return errors.Join(errs...)
}

// Dump reads our chains, and the rules of other chains that lead to our chains. It reads the rules of
// iptables-nft from the kernel, because the programs of iptables can refuse to list a table in which
// nft wrote a rule.
func (b Backend) Dump(ctx context.Context) (dump.Dump, error) {
	if b.Name() == config.IPTablesLegacy {
		return b.dumpSaved(ctx)
	}
	return dumpFromNFTables(ctx)
}
