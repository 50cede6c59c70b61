// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"

	"github.com/capture-cni/capture-cni/install/kernel"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podnet"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// Node contains the functions by which the guard uses the kernel, and sends records to the agent.
// Simulations replace them.
type Node struct {
	Open   func(ctx context.Context, path string) (Namespace, error) // errors are those of podnet.Open
	Digest func(context.Context, capture.Ruleset) (string, error)    // as kernel.References computes it
	Send   func(socket string, r record.Record) (received bool)
}

// Namespace is a pod's network namespace, as podnet.Open returns it, with the functions of package
// kernel as methods.
type Namespace interface {
	Is(path string) bool
	LockFault() error
	Observe(context.Context, kernel.Question) (kernel.Observation, error)

	// Differences compares an observation with the Ruleset. With equal, the rules are known to be equal,
	// so it compares only lo and the routes.
	Differences(ctx context.Context, o kernel.Observation, rs capture.Ruleset, equal bool) ([]string, error)

	Replace(context.Context, capture.Ruleset) (lost, err error)
	Update(context.Context, capture.Intent) error
	DeleteStale(context.Context) error
	Close() error
}

func open(ctx context.Context, path string) (Namespace, error) {
	netns, err := podnet.Open(ctx, path)
	return namespace{netns}, err
}

type namespace struct{ *podnet.Namespace }

func (n namespace) Observe(ctx context.Context, q kernel.Question) (kernel.Observation, error) {
	return kernel.Observe(ctx, n.Namespace, q)
}

func (namespace) Differences(ctx context.Context, o kernel.Observation, rs capture.Ruleset, equal bool) ([]string, error) {
	if equal {
		return o.Missing(rs), nil
	}
	return o.Differences(ctx, rs, o.Backend)
}

func (n namespace) Replace(ctx context.Context, rs capture.Ruleset) (lost, err error) {
	return kernel.Replace(ctx, n.Namespace, rs)
}

func (n namespace) Update(ctx context.Context, in capture.Intent) error {
	return kernel.Update(ctx, n.Namespace, in)
}

func (n namespace) DeleteStale(ctx context.Context) error {
	return kernel.DeleteStale(ctx, n.Namespace)
}
