// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Policy routing delivers packets with a mark inside the namespace. The table number is Istio's. The
// protocol identifies our rules and routes, so that we remove no other program's. The priority follows
// that of the kernel's rule for the table local, because another program's rule before ours could match
// the mark by a mask, and take the packets. Older versions used the priority 133.
const (
	localTable    = 133
	localPriority = 1
	localProtocol = 133
)

// localRoutes contains the policy rule and the route of one IP family. The rule makes packets with the
// mark use a table in which every destination is local.
type localRoutes struct {
	family string
	rule   *netlink.Rule
	route  *netlink.Route
}

func newLocalRoutes(mark uint32, ipv6 bool) localRoutes {
	name, family, everywhere := "IPv4", unix.AF_INET, &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
	if ipv6 {
		name, family, everywhere = "IPv6", unix.AF_INET6, &net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	}
	rule := netlink.NewRule()
	rule.Family, rule.Priority, rule.Mark, rule.Table, rule.Protocol = family, localPriority, mark, localTable, localProtocol
	return localRoutes{name, rule, &netlink.Route{
		Family: family, Table: localTable, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST,
		Dst: everywhere, LinkIndex: loopbackIndex, Protocol: localProtocol,
	}}
}

// localRoutesOf returns the rules and routes that a Ruleset needs, for each captured IP family that is
// not disabled. Without a LocalMark, it returns none.
func localRoutesOf(rs capture.Ruleset) []localRoutes {
	if rs.LocalMark == 0 {
		return nil
	}
	families := []localRoutes{newLocalRoutes(rs.LocalMark, false)}
	if rs.IPv6 == capture.Captured && !ipv6Disabled() {
		families = append(families, newLocalRoutes(rs.LocalMark, true))
	}
	return families
}

// prepareRoutes adds the missing rules and routes, and removes our policy rules with another priority or
// mark. undo is never nil, and undoes only the changes that prepareRoutes made. Errors: a
// capture.Refusal if another program has routes in the table.
func prepareRoutes(rs capture.Ruleset) (undo func() error, err error) {
	var done []func() error
	undo = func() error {
		var errs []error
		for _, undoStep := range slices.Backward(done) {
			errs = append(errs, undoStep())
		}
		return errors.Join(errs...)
	}
	for _, l := range localRoutesOf(rs) {
		rules, hasRoute, err := l.present()
		if err != nil {
			return undo, err
		}
		if !hasRoute {
			if err := netlink.RouteAdd(l.route); err != nil {
				return undo, fmt.Errorf("adding the %s: %w", l.routeName(), err)
			}
			done = append(done, func() error { return unlessAbsent(netlink.RouteDel(l.route)) })
		}
		if !slices.ContainsFunc(rules, l.isRule) {
			if err := netlink.RuleAdd(l.rule); err != nil {
				return undo, fmt.Errorf("adding the %s: %w", l.ruleName(), err)
			}
			done = append(done, func() error { return unlessAbsent(netlink.RuleDel(l.rule)) })
		}
		for _, older := range slices.DeleteFunc(rules, l.isRule) {
			if err := unlessAbsent(netlink.RuleDel(&older)); err != nil {
				return undo, fmt.Errorf("removing the %s policy rule %d of an older version: %w", l.family, older.Priority, err)
			}
			done = append(done, func() error { return netlink.RuleAdd(&older) })
		}
	}
	return undo, nil
}

// present returns our policy rules, and whether our route exists. Errors: a capture.Refusal if the
// table has another route, which could take packets.
func (l localRoutes) present() (rules []netlink.Rule, route bool, err error) {
	routes, err := netlinksafe.RouteListFiltered(l.route.Family, &netlink.Route{Table: localTable}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, false, fmt.Errorf("reading the %s routing table %d: %w", l.family, localTable, err)
	}
	for _, r := range routes {
		if r.Type != l.route.Type || r.LinkIndex != l.route.LinkIndex || r.Dst.String() != l.route.Dst.String() {
			return nil, false, capture.Refusal(fmt.Sprintf("routing table %d holds another route (%s): TPROXY needs this table for itself",
				localTable, r))
		}
	}
	rules, err = ownRules(l.rule.Family)
	return rules, len(routes) > 0, err
}

func (l localRoutes) isRule(r netlink.Rule) bool {
	return r.Priority == localPriority && r.Mark == l.rule.Mark
}

// ownRules returns the policy rules for our table that have our protocol, of any priority.
func ownRules(family int) ([]netlink.Rule, error) {
	rules, err := netlinksafe.RuleListFiltered(family, &netlink.Rule{Table: localTable}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("reading the policy rules: %w", err)
	}
	return slices.DeleteFunc(rules, func(r netlink.Rule) bool { return r.Protocol != localProtocol }), nil
}

// removeRoutes removes the policy rules for our table, and the routes in it, that have our protocol.
func removeRoutes() error {
	var errs []error
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		rules, err := ownRules(family)
		errs = append(errs, err)
		for _, rule := range rules {
			errs = append(errs, unlessAbsent(netlink.RuleDel(&rule)))
		}
		routes, err := netlinksafe.RouteListFiltered(family, &netlink.Route{Table: localTable, Protocol: localProtocol},
			netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
		errs = append(errs, err)
		for _, route := range routes {
			errs = append(errs, unlessAbsent(netlink.RouteDel(&route)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("removing the policy routing: %w", err)
	}
	return nil
}

func (l localRoutes) ruleName() string {
	return fmt.Sprintf("%s policy rule %d: mark %d, table %d", l.family, localPriority, l.rule.Mark, localTable)
}

func (l localRoutes) routeName() string {
	return fmt.Sprintf("%s route local default dev lo, table %d", l.family, localTable)
}

// unlessAbsent returns nil if the error means that a rule or route does not exist, and otherwise the
// error.
func unlessAbsent(err error) error {
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EAFNOSUPPORT) {
		return nil
	}
	return err
}
