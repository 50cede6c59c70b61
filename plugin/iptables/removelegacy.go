// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	goiptables "github.com/coreos/go-iptables/iptables"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/xtables"
)

// lockWait is the longest time, in seconds, for which a program that lists rules waits for its lock.
// Programs before iptables 1.8.6 can only use the lock of the whole node.
const lockWait = 1

// RemoveLegacy removes our rules from the tables of iptables-legacy. The tables stay, because the
// kernel can't delete them.
func RemoveLegacy(ctx context.Context) error {
	remove, err := PrepareLegacyRemoval(ctx)
	return errors.Join(err, remove())
}

// PrepareLegacyRemoval reads our rules in the tables of iptables-legacy, and returns the function that
// removes them. remove changes filter and mangle before nat, so that nat captures meanwhile. The error
// is about tables that remove does not change.
func PrepareLegacyRemoval(ctx context.Context) (remove func() error, err error) {
	var prepared []func() error
	remove = func() error {
		var errs []error
		for _, removeTable := range prepared {
			errs = append(errs, removeTable())
		}
		return errors.Join(errs...)
	}
	tables, err := xtables.List()
	if err != nil {
		return remove, err
	}
	// The library executes programs with this process's environment, so this process sets the variable.
	if err := os.Setenv(lockVariable, privateLock); err != nil {
		return remove, fmt.Errorf("setting %s: %w", lockVariable, err)
	}
	byName := func(a, b xtables.Table) int { return cmp.Compare(a.Name, b.Name) }
	var errs []error
	for _, table := range slices.SortedFunc(maps.Keys(tables), byName) {
		if !slices.Contains(tables[table], MarkerChain) {
			continue
		}
		removeTable, err := prepareLegacyTable(ctx, table)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		prepared = append(prepared, removeTable)
	}
	return remove, errors.Join(errs...)
}

func prepareLegacyTable(ctx context.Context, table xtables.Table) (remove func() error, err error) {
	host, err := findPrograms(ctx, "", table.Family, config.IPTablesLegacy)
	if err != nil {
		return nil, err
	}
	path := strings.TrimSuffix(host.save, "-save") // of the family's program
	command, err := goiptables.New(goiptables.Timeout(lockWait), goiptables.Path(path))
	if err != nil {
		return nil, fmt.Errorf("running %s: %w", path, err)
	}
	statements, err := legacyRemoval{ctx, command, table.Name}.statements()
	if err != nil {
		return nil, err
	}
	b := Backend{map[capture.Family]programs{table.Family: host}}
	return func() error { return b.restore(ctx, table.Family, statements, "--noflush") }, nil
}

// legacyRemoval prepares the removal of our chains from one table. The library has no deadlines, so each
// method checks the context before it executes a program.
type legacyRemoval struct {
	ctx     context.Context
	command *goiptables.IPTables
	table   string
}

// statements returns input for iptables-restore that deletes, in one commit, first the jumps to our
// chains and then our chains.
func (r legacyRemoval) statements() (string, error) {
	if err := r.ctx.Err(); err != nil {
		return "", err
	}
	chains, err := r.command.ListChains(r.table)
	if err != nil {
		return "", fmt.Errorf("listing the chains of table %s: %w", r.table, err)
	}
	var jumps, flushes, deletions strings.Builder
	for _, chain := range chains {
		if isOurs(chain) {
			fmt.Fprintf(&flushes, "-F %s\n", chain)
			fmt.Fprintf(&deletions, "-X %s\n", chain)
		} else if err := r.deleteJumps(&jumps, chain); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("*%s\n%s%s%sCOMMIT\n", r.table, &jumps, &flushes, &deletions), nil
}

// deleteJumps writes statements that delete a chain's rules that lead to ours. It begins with the last
// rule, so that the numbers of the others stay valid.
func (r legacyRemoval) deleteJumps(to *strings.Builder, chain string) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	lines, err := r.command.List(r.table, chain)
	if err != nil {
		return fmt.Errorf("listing chain %s of table %s: %w", chain, r.table, err)
	}
	// The first line is the chain itself, so a line's index is the number of its rule.
	for number, line := range slices.Backward(lines) {
		if rule := (savedRule{chain, line}); number > 0 && rule.leadsToOurs() {
			fmt.Fprintf(to, "-D %s %d\n", chain, number)
		}
	}
	return nil
}
