// SPDX-License-Identifier: Apache-2.0

// Package validate proves from inside a pod, without capabilities, that the pod's traffic is captured.
// It listens at the proxy's port, opens a connection that the rules should redirect to this port, and
// checks that its own listener responds. The package also contains the programs that run in the pods of
// kubectl capture-cni test.
package validate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"
)

// Settings are the command's arguments.
type Settings struct {
	Direction Direction
	Families  Families
	Port      uint16 // the proxy's port for this direction

	// Destinations of outbound connections. Run uses the first address of each family; the addresses
	// need not belong to a host.
	Destinations []netip.Addr

	// Budget is the time to wait for the rules. 0 means one attempt. The rules can come late, for example
	// from a guard that repairs a pod that started before the plugin was installed.
	Budget time.Duration
}

// Exit statuses. Status 1 means any other error, such as a wrong flag. None equals 126, which Istio's
// validation returns.
const (
	CodeOutbound  = 10 // outbound traffic is not captured
	CodeInbound   = 11 // inbound traffic is not captured
	CodePortInUse = 12 // another process, probably the proxy, uses the port
	CodeNotTried  = 13 // unknown, because an address or a route is missing
)

// Failure is the error of a run that did not prove the capture.
type Failure struct {
	Code int // the command's exit status
	error
}

const retryInterval = 250 * time.Millisecond

// Run returns nil once the capture of each family is proved. If the budget is used up before, the
// proxy's port is in use, or an address for a family is missing, it returns a Failure.
func Run(ctx context.Context, s Settings, progress io.Writer) error {
	var probes []*probe
	defer func() {
		for _, p := range probes {
			p.close()
		}
	}()
	for deadline := time.Now().Add(s.Budget); ; {
		// With Auto, a family can be added during the run, because in a dual-stack pod, IPv6 is tested
		// only once lo has the address that ADD or a repair adds with the IPv6 rules.
		added, err := s.newProbes(ctx, probes)
		probes = append(probes, added...)
		if err != nil {
			return err
		}
		missing := unproved(probes)
		if len(missing) == 0 {
			return nil
		}
		for _, p := range missing {
			p.attempt(ctx, progress)
		}
		switch rest := unproved(missing); {
		case len(rest) < len(missing):
			continue
		case ctx.Err() != nil || time.Until(deadline) < retryInterval:
			return s.failure(rest)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryInterval):
		}
	}
}

// newProbes returns probes for the families that have no probe yet.
func (s Settings) newProbes(ctx context.Context, known []*probe) ([]*probe, error) {
	pod, err := readPodNetwork()
	if err != nil {
		return nil, err
	}
	families := pod.families(s.Families)
	if len(families) == 0 {
		return nil, &Failure{CodeNotTried, errors.New("the pod has no address besides loopback and link-local ones")}
	}
	var added []*probe
	for _, family := range families {
		if slices.ContainsFunc(known, func(p *probe) bool { return p.family == family }) {
			continue
		}
		to, err := s.destination(pod, family)
		if err != nil {
			return added, err
		}
		standIn, err := newStandIn(ctx, family, s.Port)
		if err != nil {
			return added, err
		}
		added = append(added, &probe{direction: s.Direction, family: family, to: netip.AddrPortFrom(to, probePort), standIn: standIn})
	}
	return added, nil
}

func unproved(probes []*probe) []*probe {
	return slices.DeleteFunc(slices.Clone(probes), func(p *probe) bool { return p.proved })
}

// failure returns the Failure for the probes that have not proved capture. If the pod has a route for
// none of them, the Failure's code is CodeNotTried.
func (s Settings) failure(missing []*probe) error {
	code := CodeNotTried
	var reasons []string
	for _, p := range missing {
		if !p.unroutable() {
			code = CodeOutbound
			if s.Direction == Inbound {
				code = CodeInbound
			}
		}
		reasons = append(reasons, fmt.Sprintf("%s: %v", p.family, p.err))
	}
	return &Failure{code, fmt.Errorf("no proof that %s traffic is captured (waited %s, running with uid %d and gid %d): %s",
		s.Direction, s.Budget, os.Getuid(), os.Getgid(), strings.Join(reasons, "; "))}
}

// Direction is the direction of the traffic that a run proves. A run proves only one direction, because
// the rules decide by uid, and a process without capabilities can't change its uid.
type Direction string

const (
	// Outbound connects to an address outside the pod, with any uid and gid other than the proxy's.
	Outbound Direction = "outbound"

	// Inbound connects to the pod's own address, with the proxy's uid. The rules of Istio and Kuma treat
	// such a connection as inbound, because the proxy opens it if the pod calls its own service. Other
	// meshes' rules exempt such a connection, so a run can't prove that they capture inbound traffic.
	Inbound Direction = "inbound"
)

// DefaultDestinations returns addresses that are reserved for documentation, so no host has them.
func DefaultDestinations() []netip.Addr {
	return []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
}

func (s Settings) destination(pod podNetwork, f Family) (netip.Addr, error) {
	candidates, missing := s.Destinations, "no --destination is an %s address"
	if s.Direction == Inbound {
		candidates, missing = pod.addresses, "the pod has no %s address"
	}
	if i := slices.IndexFunc(candidates, f.has); i >= 0 {
		return candidates[i], nil
	}
	return netip.Addr{}, &Failure{CodeNotTried, fmt.Errorf(missing, f)}
}
