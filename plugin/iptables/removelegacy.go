// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/xtables"
)

// RemoveLegacy removes our rules from the tables of iptables-legacy. The tables
// stay: the kernel can't delete them.
func RemoveLegacy(ctx context.Context) error {
	return removeLegacy(ctx, func(family capture.Family) (programs, error) {
		return findPrograms(ctx, "", family, config.IPTablesLegacy)
	})
}

func removeLegacy(ctx context.Context, programsOf func(capture.Family) (programs, error)) error {
	tables, err := xtables.List()
	if err != nil {
		return err
	}
	var errs []error
	for table, chains := range tables {
		if !slices.Contains(chains, MarkerChain) {
			continue
		}
		p, err := programsOf(table.Family)
		if err == nil {
			err = p.removeTable(ctx, table.Name)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (p programs) removeTable(ctx context.Context, name string) error {
	tables, err := p.read(ctx, "-t", name)
	if err != nil {
		return err
	}
	var statements strings.Builder
	for _, table := range tables {
		statements.WriteString(table.removal())
	}
	return p.write(ctx, statements.String())
}

// removal returns the input of an iptables-restore that deletes the jumps to our chains
// first, of each chain the last one first, then the chains, in one commit.
func (t savedTable) removal() string {
	var jumps []string
	numbers := map[string]int{} // of the last rule of each chain
	for _, rule := range t.rules {
		numbers[rule.chain]++
		if !isOurs(rule.chain) && rule.leadsToOurs() {
			jumps = append(jumps, fmt.Sprintf("-D %s %d\n", rule.chain, numbers[rule.chain]))
		}
	}
	slices.Reverse(jumps)
	var flushes, deletions strings.Builder
	for _, chain := range t.chains {
		if isOurs(chain) {
			fmt.Fprintf(&flushes, "-F %s\n", chain)
			fmt.Fprintf(&deletions, "-X %s\n", chain)
		}
	}
	return fmt.Sprintf("*%s\n%s%s%sCOMMIT\n", t.name, strings.Join(jumps, ""), &flushes, &deletions)
}
