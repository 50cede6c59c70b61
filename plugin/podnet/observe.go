// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// State is what a namespace holds of traffic capture.
type State = netfilter.State

// State looks, changes nothing and executes nothing.
func (n *Namespace) State() (state State, err error) {
	err = n.do(func() error {
		state, err = netfilter.Inspect()
		return err
	})
	return state, err
}

// Generation changes with every change of a rule in the namespace, but for
// those of iptables-legacy.
func (n *Namespace) Generation() (generation uint32, err error) {
	err = n.do(func() error {
		generation, err = netfilter.Generation()
		return err
	})
	return generation, err
}

// References keeps what the kernel makes of each Ruleset, for one goroutine
// that looks at many namespaces often. Its zero value is ready.
type References struct{ known map[reference]netfilter.Table }

type reference struct {
	backend capture.Backend
	stamp   string
}

func (r *References) of(ctx context.Context, backend netfilter.Backend, rs capture.Ruleset) (netfilter.Table, error) {
	key := reference{backend.Name(), rs.Stamp()}
	if table, ok := r.known[key]; ok {
		return table, nil
	}
	table, err := netfilter.Reference(ctx, backend, rs)
	if err != nil {
		return table, err
	}
	if r.known == nil {
		r.known = map[reference]netfilter.Table{}
	}
	r.known[key] = table
	return table, nil
}

// Keep forgets all rulesets but those with these stamps.
func (r *References) Keep(stamps []string) {
	maps.DeleteFunc(r.known, func(key reference, _ netfilter.Table) bool { return !slices.Contains(stamps, key.stamp) })
}

// Compare is Check by what is known already.
func (n *Namespace) Compare(ctx context.Context, references *References, rs capture.Ruleset, asked capture.Backend) ([]string, error) {
	return n.check(ctx, asked, rs, references.of)
}

// Is tells whether the namespace is the one that a path leads to now; a path
// that leads nowhere, or may not be followed, is of no namespace.
func (n *Namespace) Is(path string) (bool, error) {
	var own, there unix.Stat_t
	if err := unix.Fstat(int(n.netns.Fd()), &own); err != nil {
		return false, fmt.Errorf("looking at the network namespace: %w", err)
	}
	return unix.Stat(path, &there) == nil && own.Dev == there.Dev && own.Ino == there.Ino, nil
}
