// SPDX-License-Identifier: Apache-2.0

// Package validate proves from inside a pod, without capabilities, that the pod's
// traffic is captured: it listens at the proxy's port, connects as an application
// would, and checks that its own listener responds. The package also contains the programs
// that run in the pods of kubectl capture-cni test.
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
	Port      uint16 // the proxy's port for the direction

	// Destinations of outbound connections: the first one of each family is
	// used. No host has to have these addresses.
	Destinations []netip.Addr

	// Budget is how long to wait for the rules: a pod that started before the
	// plugin was installed is repaired some seconds later. 0 is one attempt.
	Budget time.Duration
}

// Exit statuses. Status 1 is for all other errors, such as wrong flags; 126 is
// that of Istio's own validation.
const (
	CodeOutbound  = 10 // outbound traffic is not captured
	CodeInbound   = 11 // inbound traffic is not captured
	CodePortInUse = 12 // another process, probably the proxy, has the port
	CodeNotTried  = 13 // unknown: the pod has no address or no route
)

// Failure is the error of a run that did not prove capture.
type Failure struct {
	Code int // the command's exit status
	error
}

const retryInterval = 250 * time.Millisecond

// Run returns nil once every family is proved, and a Failure at the end of the
// budget.
func Run(ctx context.Context, s Settings, progress io.Writer) error {
	var probes []*probe
	defer func() {
		for _, p := range probes {
			p.close()
		}
	}()
	for deadline := time.Now().Add(s.Budget); ; {
		// A family can be added meanwhile: ADD assigns an address with IPv6 rules.
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

// newProbes returns probes for the families that have none yet.
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

// failure returns the Failure of the probes that were not proved. If none of them
// has a route, the rules were not tested.
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
	return &Failure{code, fmt.Errorf("%s traffic is not captured (waited %s, running with uid %d and gid %d): %s",
		s.Direction, s.Budget, os.Getuid(), os.Getgid(), strings.Join(reasons, "; "))}
}

// Direction is the traffic that one run proves. A run proves one direction: the
// rules decide by uid, and a process without capabilities can't change its uid.
type Direction string

const (
	// Outbound connects to another host, with any uid and gid but the proxy's.
	Outbound Direction = "outbound"

	// Inbound connects to the pod's own address, with the proxy's uid. The rules
	// treat such a connection as inbound: it is the pod calling its own service.
	Inbound Direction = "inbound"
)

// DefaultDestinations returns addresses that are reserved for documentation: no
// host has them.
func DefaultDestinations() []netip.Addr {
	return []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
}

// destination returns the address to connect to.
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
