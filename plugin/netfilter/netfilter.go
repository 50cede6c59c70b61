// SPDX-License-Identifier: Apache-2.0

// Package netfilter finds a backend, and reads and removes capture rules in the network namespace of the
// calling thread. For comparisons, and to test a backend, it writes rules to a temporary namespace and
// reads them back.
package netfilter

import (
	"context"
	"fmt"

	"github.com/containernetworking/plugins/pkg/ns"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/dump"
	"github.com/capture-cni/capture-cni/plugin/iptables"
	"github.com/capture-cni/capture-cni/plugin/nftables"
)

// Backend writes a Ruleset into the calling thread's namespace, and reads it back.
type Backend interface {
	// Name returns the backend's name. It never returns config.IPTables, which is an alias.
	Name() config.Backend

	// Apply adds the whole Ruleset or, if it returns an error, no rule, unless undoing fails or the
	// kernel's answer is lost. The namespace must not contain our rules.
	Apply(ctx context.Context, rs capture.Ruleset) error

	Dump(ctx context.Context) (dump.Dump, error)
}

// Find returns the backend with this name. For the alias config.IPTables, it returns the variant of the
// host's programs. Errors: a capture.Refusal if the host lacks the backend's programs, or has different
// variants for IPv4 and IPv6.
func Find(ctx context.Context, backend config.Backend) (Backend, error) {
	return FindBelow(ctx, "", backend)
}

// FindBelow finds the backend, like Find, on a host whose programs are in the file system at root.
func FindBelow(ctx context.Context, root string, backend config.Backend) (Backend, error) {
	if backend == config.NFTables {
		return nftables.Backend{}, nil
	}
	return iptables.Find(ctx, root, backend)
}

// Reference applies a Ruleset in a temporary namespace, and returns the rules as the backend reads them
// back. So a comparison with these rules does not depend on the form in which a kernel or, if it wrote
// both, a version of iptables represents a rule.
func Reference(ctx context.Context, backend Backend, rs capture.Ruleset) (reference dump.Dump, err error) {
	scratch, err := ns.TempNetNS()
	if err != nil {
		return dump.Dump{}, fmt.Errorf("creating a scratch namespace: %w", err)
	}
	defer scratch.Close()
	err = scratch.Do(func(ns.NetNS) error {
		if err := backend.Apply(ctx, rs); err != nil {
			return fmt.Errorf("applying the rules in a scratch namespace: %w", err)
		}
		reference, err = backend.Dump(ctx)
		return err
	})
	return reference, err
}
