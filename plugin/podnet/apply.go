// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"fmt"
	"strings"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// Apply makes the namespace hold the Ruleset. The rules come last and are the
// only commit point: with an error, the namespace is as it was. The same rules
// there already are success; other ones, or another plugin's, a capture.Refusal.
func (n *Namespace) Apply(rs capture.Ruleset) error {
	return n.do(func() error {
		state, err := netfilter.Inspect()
		switch {
		case err != nil:
			return err
		case state.Foreign != "":
			return capture.Refusal(fmt.Sprintf("%s holds another plugin's capture rules: only one of the two may be in the chain", state.Foreign))
		case state.Stamp == "":
			return install(rs)
		case state.Stamp == rs.Stamp():
			return keep(rs)
		}
		return capture.Refusal(fmt.Sprintf("other rules of ours are in the namespace already (%s): DEL must come first", state.Stamp))
	})
}

func install(rs capture.Ruleset) error {
	undo, err := prepareLoopback(rs.IPv6)
	if err == nil {
		err = netfilter.Apply(rs)
	}
	if err != nil {
		return errors.Join(err, undo())
	}
	return nil
}

// keep is for rules that bear the right stamp: they must still be the right ones.
func keep(rs capture.Ruleset) error {
	differences, err := compare(rs)
	if err != nil {
		return err
	}
	if len(differences) > 0 {
		return capture.Refusal("the rules in the namespace were changed since ADD; DEL must come first:\n" + strings.Join(differences, "\n"))
	}
	_, err = prepareLoopback(rs.IPv6)
	return err
}

func compare(rs capture.Ruleset) ([]string, error) {
	want, err := netfilter.Reference(rs)
	if err != nil {
		return nil, err
	}
	found, err := netfilter.Dump()
	if err != nil {
		return nil, err
	}
	return netfilter.Diff(want, found), nil
}

// Check compares the namespace with the Ruleset and changes nothing. It
// returns the differences, one line each.
func (n *Namespace) Check(rs capture.Ruleset) ([]string, error) {
	var differences []string
	err := n.do(func() error {
		var err error
		if differences, err = compare(rs); err != nil {
			return err
		}
		loopback, err := checkLoopback(rs.IPv6)
		differences = append(differences, loopback...)
		return err
	})
	return differences, err
}

// Remove takes out what Apply put in; nothing there is success.
func (n *Namespace) Remove() error {
	return n.do(func() error {
		state, err := netfilter.Inspect()
		if err != nil {
			return err
		}
		err = netfilter.Remove()
		if capture.StampCovers(state.Stamp, capture.IPv6) {
			err = errors.Join(err, removeProxySource())
		}
		return err
	})
}
