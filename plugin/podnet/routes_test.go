// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/lab/sample"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// foreign are another program's route in our table, and its rule of our priority, in each family.
func foreign(protocol uint8) (routes []*netlink.Route, rules []*netlink.Rule) {
	for _, ipv6 := range []bool{false, true} {
		l := newLocalRoutes(77, ipv6)
		l.route.Protocol, l.rule.Protocol = netlink.RouteProtocol(protocol), protocol
		l.route.Dst = &net.IPNet{IP: net.IPv4(192, 0, 2, 0).To4(), Mask: net.CIDRMask(24, 32)}
		if ipv6 {
			l.route.Dst = &net.IPNet{IP: net.ParseIP("2001:db8::"), Mask: net.CIDRMask(64, 128)}
		}
		routes, rules = append(routes, l.route), append(rules, l.rule)
	}
	return routes, rules
}

// stateOf returns what prepare could change in the namespace: lo, with its addresses, and each
// route and rule of our table, whoever added it.
func stateOf(t *testing.T) (all []string) {
	t.Helper()
	_, up, err := loopback()
	if err != nil {
		t.Error(err)
	}
	if up {
		all = append(all, "lo is up")
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		addresses, addressErr := netlinksafe.AddrList(lo(), family)
		for _, a := range addresses {
			all = append(all, "address "+a.IPNet.String())
		}
		routes, routeErr := netlinksafe.RouteListFiltered(family, &netlink.Route{Table: localTable}, netlink.RT_FILTER_TABLE)
		for _, r := range routes {
			all = append(all, "route "+r.String())
		}
		rules, ruleErr := netlinksafe.RuleListFiltered(family, &netlink.Rule{Table: localTable}, netlink.RT_FILTER_TABLE)
		for _, r := range rules {
			all = append(all, r.String())
		}
		if err := errors.Join(addressErr, routeErr, ruleErr); err != nil {
			t.Error(err)
		}
	}
	slices.Sort(all)
	return all
}

// expectState expects what is there to be as before.
func expectState(t *testing.T, when string, before []string) {
	t.Helper()
	if after := stateOf(t); !slices.Equal(after, before) {
		t.Errorf("%s, the namespace has\n%s\nand had before\n%s", when, strings.Join(after, "\n"), strings.Join(before, "\n"))
	}
}

// TestRemoveKeepsOthersRoutes removes ours among another program's, in the same table.
func TestRemoveKeepsOthersRoutes(t *testing.T) {
	lab.RequireRoot(t)
	lab.StartHost(t).Within(t, func() error {
		routes, rules := foreign(unix.RTPROT_STATIC)
		errs := []error{netlink.LinkSetUp(lo())}
		for i := range routes {
			errs = append(errs, netlink.RouteAdd(routes[i]), netlink.RuleAdd(rules[i]))
		}
		before := stateOf(t)
		ours, ourRules := foreign(localProtocol)
		for i := range ours {
			ours[i].Dst, ourRules[i].Priority = newLocalRoutes(1337, i == 1).route.Dst, localPriority+1
			errs = append(errs, netlink.RouteAdd(ours[i]), netlink.RuleAdd(ourRules[i]))
		}
		if len(stateOf(t)) != len(before)+4 {
			t.Errorf("ours are not there: %q", stateOf(t))
		}
		for range 2 { // there is nothing to remove the second time
			errs = append(errs, removeRoutes())
			expectState(t, "after the removal of ours", before)
		}
		return errors.Join(errs...)
	})
}

// needingAll returns rules that need all that prepare can add.
func needingAll() capture.Ruleset {
	source := capture.Match{Src: capture.List[netip.Prefix]{Values: []netip.Prefix{capture.ProxySourceIPv6}}}
	return capture.Ruleset{LocalMark: 1337, IPv6: capture.Captured, Chains: []capture.Chain{{Rules: []capture.Rule{{Match: source}}}}}
}

// TestCommitUndone begins with what a runtime, an older version or another program may have
// left, and fails in the middle of the preparation or after it: all is as it was.
func TestCommitUndone(t *testing.T) {
	lab.RequireRoot(t)
	up := func() error { return netlink.LinkSetUp(lo()) }
	older := func(ipv6 bool) error {
		l := newLocalRoutes(1337, ipv6)
		l.rule.Priority = 133
		return netlink.RuleAdd(l.rule)
	}
	for name, begin := range map[string]func() error{
		"nothing":  func() error { return nil },
		"lo is up": up,
		"the address": func() error {
			return errors.Join(up(), netlink.AddrAdd(lo(), address(capture.ProxySourceIPv6.String())))
		},
		"rules of an older version": func() error { return errors.Join(older(false), older(true)) },
		"an older rule for IPv4":    func() error { return errors.Join(up(), older(false)) },
		"our route for IPv4":        func() error { return errors.Join(up(), netlink.RouteAdd(newLocalRoutes(1337, false).route)) },
		"our rule for IPv6":         func() error { return netlink.RuleAdd(newLocalRoutes(1337, true).rule) },
		"another's route, IPv4": func() error {
			routes, _ := foreign(unix.RTPROT_STATIC)
			return errors.Join(up(), netlink.RouteAdd(routes[0]))
		},
		"another's route, IPv6": func() error {
			routes, _ := foreign(unix.RTPROT_STATIC)
			return errors.Join(up(), netlink.RouteAdd(routes[1]))
		},
		"another's, and older rules": func() error {
			routes, _ := foreign(unix.RTPROT_STATIC)
			return errors.Join(up(), older(false), older(true), netlink.RouteAdd(routes[1]))
		},
	} {
		t.Run(name, func(t *testing.T) {
			lab.StartHost(t).Within(t, func() error {
				if err := begin(); err != nil {
					return err
				}
				before := stateOf(t)
				refused := errors.New("the kernel refuses the rules")
				for range 2 {
					err := PrepareAndApply(t.Context(), needingAll(), func(context.Context, capture.Ruleset) error {
						if added := stateOf(t); len(added) <= len(before) && !strings.Contains(name, "older") {
							t.Errorf("nothing was prepared: %q", added)
						}
						return refused
					})
					_, refusal := errors.AsType[capture.Refusal](err)
					if refusal != strings.Contains(name, "another's") || !refusal && !errors.Is(err, refused) {
						t.Errorf("got %v", err)
					}
					expectState(t, "after a commit that failed", before)
				}
				return nil
			})
		})
	}
}

// TestHalfOfWhatRulesNeed takes away, one by one, what an ADD added next to the rules: CHECK
// names it, another ADD of the same rules adds it again, and DEL removes the rest, even if it
// can't read the rules.
func TestHalfOfWhatRulesNeed(t *testing.T) {
	lab.RequireRoot(t)
	host := lab.StartHost(t)
	rules := sample.Rules(func(i *capture.Intent) { i.Transparent = true })
	n, err := Open(t.Context(), host.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	within := func(f func() error) {
		t.Helper()
		if err := n.Do(f); err != nil {
			t.Error(err)
		}
	}
	if err := n.Apply(t.Context(), rules, config.NFTables); err != nil {
		t.Fatal(err)
	}
	var whole []string
	within(func() error { whole = stateOf(t); return nil })
	four, six := newLocalRoutes(rules.LocalMark, false), newLocalRoutes(rules.LocalMark, true)
	for want, take := range map[string]func() error{
		"missing: " + four.ruleName():            func() error { return netlink.RuleDel(four.rule) },
		"missing: " + six.ruleName():             func() error { return netlink.RuleDel(six.rule) },
		"missing: " + four.routeName():           func() error { return netlink.RouteDel(four.route) },
		"missing: " + six.routeName():            func() error { return netlink.RouteDel(six.route) },
		"missing: address ::6/128 of lo":         func() error { return removeAddress(capture.ProxySourceIPv6.String()) },
		"down: interface lo":                     func() error { return netlink.LinkSetDown(lo()) },
		"missing: " + four.routeName() + ", too": func() error { return errors.Join(netlink.RouteDel(four.route), netlink.RuleDel(six.rule)) },
	} {
		within(take)
		found, err := n.Observe(t.Context(), true)
		lab.Check(t, err)
		missing, err := found.Differences(t.Context(), rules, config.NFTables)
		if err != nil || !slices.Contains(missing, strings.TrimSuffix(want, ", too")) {
			t.Errorf("CHECK says %q, %v, want %q", missing, err, want)
		}
		if err := n.Apply(t.Context(), rules, config.NFTables); err != nil {
			t.Errorf("another ADD, %s: %v", want, err)
		}
		within(func() error { expectState(t, "after another ADD, "+want, whole); return nil })
	}
	within(func() error { return errors.Join(netlink.RouteDel(four.route), netlink.RuleDel(six.rule)) })
	late, end := context.WithCancel(t.Context())
	end()
	if err := n.Remove(late); err == nil {
		t.Error("a DEL without time has read the rules")
	}
	for _, when := range []string{"after a DEL that could not read the rules", "after DEL", "after another DEL"} {
		within(func() error {
			expectState(t, when, []string{"address 127.0.0.1/8", "address ::1/128", "lo is up"})
			return nil
		})
		if err := n.Remove(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
