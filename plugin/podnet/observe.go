// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/dump"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// Observation describes the capture rules in a namespace, and the namespace's loopback interface,
// addresses and policy routing.
type Observation struct {
	netfilter.State
	Rules      dump.Dump    // our rules; empty if there are none, empty or incomplete after a RulesFault
	RulesFault error        // why State or Rules could not be read; a capture.Refusal if the host lacks the programs
	Addresses  []netip.Addr // of all interfaces

	loopback loopbackFacts
	routes   []routeFacts // of IPv4 and, unless it is disabled, IPv6; empty if routes were not requested
}

// Observe calls the function Observe in the namespace.
func (n *Namespace) Observe(ctx context.Context, routes bool) (Observation, error) {
	return Read(n, func() (Observation, error) { return Observe(ctx, routes) })
}

// Observe reads the calling thread's namespace, and changes nothing. With routes, it also reads the
// policy routing for TPROXY.
func Observe(ctx context.Context, routes bool) (o Observation, err error) {
	all, err := ListAddresses()
	if err != nil {
		return o, fmt.Errorf("reading the pod's addresses: %w", err)
	}
	o.Addresses = addressesOf(all)
	if o.loopback, err = observeLoopback(all); err != nil {
		return o, err
	}
	o.RulesFault = o.readRules(ctx)
	if routes {
		o.routes, err = observeRoutes()
	}
	return o, err
}

func (o *Observation) readRules(ctx context.Context) (err error) {
	if o.State, err = netfilter.Inspect(ctx); err != nil || o.Backend == "" {
		return err
	}
	backend, err := netfilter.Find(ctx, o.Backend)
	if err != nil {
		return err
	}
	o.Rules, err = backend.Dump(ctx)
	return err
}

// Differences returns the lines of dump.Diff about the rules, and then those of Missing. It expects the
// rules of the backend that wrote the existing rules or, if there are none, of the backend asked.
func (o Observation) Differences(ctx context.Context, rs capture.Ruleset, asked config.Backend) ([]string, error) {
	backend, err := netfilter.Find(ctx, cmp.Or(o.Backend, asked))
	if err != nil {
		return nil, err
	}
	differences, err := compare(ctx, backend, rs, o.Rules, o.RulesFault)
	if err != nil {
		return nil, err
	}
	return slices.Concat(differences, o.Missing(rs)), nil
}

// compare compares rules that were read from the kernel with the Reference of the Ruleset. If fault is
// nfnetlink.TooLarge, compare returns only this difference, because it expects no Ruleset to exceed the
// limits.
func compare(ctx context.Context, backend netfilter.Backend, rs capture.Ruleset, found dump.Dump, fault error) ([]string, error) {
	if tooLarge, ok := errors.AsType[nfnetlink.TooLarge](fault); ok {
		return []string{"unexpected: " + tooLarge.Error()}, nil
	}
	if fault != nil {
		return nil, fault
	}
	want, err := netfilter.Reference(ctx, backend, rs)
	if err != nil {
		return nil, err
	}
	return dump.Diff(want, found), nil
}

// Missing returns a line for each difference, other than in netfilter rules, between the namespace and
// the state that the Ruleset needs.
func (o Observation) Missing(rs capture.Ruleset) []string {
	missing := o.loopback.missing(rs.NeedsProxySource())
	if rs.LocalMark == 0 {
		return missing
	}
	for _, facts := range o.routes {
		if facts.family == unix.AF_INET || rs.IPv6 == capture.Captured {
			missing = append(missing, facts.missing(rs.LocalMark)...)
		}
	}
	return missing
}

type loopbackFacts struct {
	name            string
	up, ipv6, proxy bool // proxy: lo has the address from which the proxy connects over IPv6
}

func observeLoopback(all []netlink.Addr) (facts loopbackFacts, err error) {
	facts.name, facts.up, err = loopback()
	facts.ipv6 = !ipv6Disabled()
	want := address(capture.ProxySourceIPv6.String())
	facts.proxy = slices.ContainsFunc(all, func(a netlink.Addr) bool { return a.LinkIndex == loopbackIndex && a.Equal(*want) })
	return facts, err
}

// missing returns a line for each difference between the loopback interface and the state that the rules
// need.
func (l loopbackFacts) missing(ipv6 bool) (missing []string) {
	if l.name != "lo" { // the rules of iptables match this name
		missing = append(missing, fmt.Sprintf("unexpected: the loopback interface is named %q", l.name))
	}
	if !l.up {
		missing = append(missing, "down: interface lo")
	}
	if ipv6 && l.ipv6 && !l.proxy {
		missing = append(missing, fmt.Sprintf("missing: address %s of lo", capture.ProxySourceIPv6))
	}
	return missing
}

type routeFacts struct {
	family int
	rules  []netlink.Rule // our rules
	route  bool
	taken  error // a capture.Refusal if another program has routes in our table
}

// observeRoutes reads our policy rules and routes, for IPv4 and, unless it is disabled, IPv6.
func observeRoutes() (all []routeFacts, err error) {
	for _, l := range localRoutesOf(capture.Ruleset{LocalMark: 1, IPv6: capture.Captured}) {
		facts := routeFacts{family: l.rule.Family}
		facts.rules, facts.route, err = l.present()
		if refusal, ok := errors.AsType[capture.Refusal](err); ok {
			facts.taken, err = refusal, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, facts)
	}
	return all, nil
}

// missing returns a line if our route is missing, and a line if our policy rule is missing. If another
// program has routes in our table, it returns only a line about these.
func (f routeFacts) missing(mark uint32) (missing []string) {
	if f.taken != nil {
		return []string{"unexpected: " + f.taken.Error()}
	}
	l := newLocalRoutes(mark, f.family == unix.AF_INET6)
	if !f.route {
		missing = append(missing, "missing: "+l.routeName())
	}
	if !slices.ContainsFunc(f.rules, l.isRule) {
		missing = append(missing, "missing: "+l.ruleName())
	}
	return missing
}
