// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/iptables"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// NoIPv6 is the error for a kernel that lacks a module that iptables needs for IPv6.
type NoIPv6 = iptables.NoIPv6

// Apply prepares lo and the routes, and then commits the Ruleset. If either fails, it undoes the
// preparation. If the namespace already has the same rules, Apply only restores lo and the routes, and
// undoes nothing.
// Errors: NoIPv6; a capture.Refusal, for example if the namespace has other rules of ours, another
// plugin's capture rules, or another program's routes in the routing table that TPROXY needs.
func (n *Namespace) Apply(ctx context.Context, rs capture.Ruleset, asked config.Backend) error {
	if err := n.refuseUserNamespace(asked); err != nil {
		return err
	}
	rs = rs.WithStamp()
	return n.Do(func() error {
		backend, err := netfilter.Find(ctx, asked)
		if err != nil {
			return err
		}
		state, err := netfilter.Inspect(ctx)
		switch {
		case err != nil:
			return err
		case state.Foreign != "":
			return capture.Refusal(fmt.Sprintf("%s holds another plugin's capture rules: only one of the two may capture a pod", state.Foreign))
		case state.Backend == "":
			return PrepareAndApply(ctx, rs, backend.Apply)
		case state.Backend != backend.Name():
			return capture.Refusal(fmt.Sprintf("the namespace holds rules of an earlier ADD, by backend %s instead of %s: "+
				"delete the pod to get a new sandbox", state.Backend, backend.Name()))
		}
		return verifyPresent(ctx, rs, backend, state.Stamp)
	})
}

// PrepareAndApply prepares the namespace, and calls apply, which commits the Ruleset. After an error, it
// undoes the preparation.
func PrepareAndApply(ctx context.Context, rs capture.Ruleset, apply func(context.Context, capture.Ruleset) error) error {
	undo, err := prepare(rs)
	if err == nil {
		err = apply(ctx, rs)
	}
	if err != nil {
		return errors.Join(err, undo())
	}
	return nil
}

// prepare sets up lo and the policy routing for the rules. undo is never nil.
func prepare(rs capture.Ruleset) (undo func() error, err error) {
	undoLoopback, err := prepareLoopback(rs.NeedsProxySource())
	if err != nil {
		return undoLoopback, err
	}
	undoRoutes, err := prepareRoutes(rs)
	return func() error { return errors.Join(undoRoutes(), undoLoopback()) }, err
}

// verifyPresent checks the rules in a namespace that has this stamp. If they are correct, it restores lo
// and the policy routing. If they are others or were changed, it returns a Refusal or, if the kernel lacks
// a module that rs needs for IPv6, NoIPv6, because an earlier ADD may have let IPv6 pass for this reason.
func verifyPresent(ctx context.Context, rs capture.Ruleset, backend netfilter.Backend, stamp string) error {
	found, err := backend.Dump(ctx)
	differences, err := compare(ctx, backend, rs, found, err) // with rs as the backend writes it into a temporary namespace
	if err != nil {
		return err
	}
	if stamp != rs.Stamp() {
		return capture.Refusal(fmt.Sprintf("the namespace holds other rules of an earlier ADD (%s): delete the pod to get a new sandbox", stamp))
	}
	if len(differences) > 0 {
		return capture.Refusal("the rules in the namespace were changed since ADD; " +
			"delete the pod to get a new sandbox:\n" + strings.Join(differences, "\n"))
	}
	_, err = prepare(rs)
	return err
}

// Remove removes our rules, of any backend, our policy routing and, if the Stamp says that IPv6 is
// captured, the address that Apply added. lo stays up. If Remove can't read the State, it still removes
// everything that it finds, including this address, and returns the error.
func (n *Namespace) Remove(ctx context.Context) error {
	return n.Do(func() error {
		state, err := netfilter.Inspect(ctx)
		unread := err != nil
		err = errors.Join(err, netfilter.Remove(ctx), removeRoutes())
		if unread || capture.StampedIPv6(state.Stamp) == capture.Captured {
			err = errors.Join(err, removeAddress(capture.ProxySourceIPv6.String()))
		}
		return err
	})
}
