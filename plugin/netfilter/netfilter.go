// SPDX-License-Identifier: Apache-2.0

// Package netfilter chooses a backend, reads which capture rules the network namespace of
// the calling thread holds, removes ours, and makes a reference to compare rules with.
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

// Backend puts Rulesets into the namespace of the calling thread and reads
// them back.
type Backend interface {
	// Name returns the backend's name; never config.IPTables, which is an alias.
	Name() config.Backend

	// Apply adds the Ruleset: all of it or, with an error, nothing. The namespace
	// must not hold rules of ours.
	Apply(ctx context.Context, rs capture.Ruleset) error

	// Dump reads our rules back.
	Dump(ctx context.Context) (dump.Dump, error)
}

// Find returns the backend that the operator chose. Errors: a capture.Refusal
// where the host lacks its programs.
func Find(ctx context.Context, backend config.Backend) (Backend, error) {
	return FindBelow(ctx, "", backend)
}

// FindBelow is Find with the host's programs in the file system at root.
func FindBelow(ctx context.Context, root string, backend config.Backend) (Backend, error) {
	if backend == config.NFTables {
		return nftables.Backend{}, nil
	}
	return iptables.Find(ctx, root, backend)
}

// Reference applies a Ruleset in a scratch namespace and returns what the kernel
// holds there, so that a comparison does not depend on how this kernel, or this
// version of iptables, represents a rule.
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
