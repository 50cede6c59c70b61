// SPDX-License-Identifier: Apache-2.0

// Package validate proves from inside a pod, without any capability, that the
// pod's traffic is captured: it listens where the proxy will, connects as an
// application would, and looks at who answers.
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

// Settings are what to prove, and how long to wait for it.
type Settings struct {
	Direction Direction
	Families  Families
	Port      uint16 // the proxy's, for this direction

	// Destinations are where outbound connections are tried, one a family.
	// Nothing has to answer there.
	Destinations []netip.Addr

	// Budget is how long rules may take to appear: pods that were started too
	// early are repaired some seconds later. One try is made without any.
	Budget time.Duration
}

// pause is between two rounds of tries.
const pause = 250 * time.Millisecond

// Run returns once everything is proved, with a Failure once it can't be.
func Run(ctx context.Context, s Settings, progress io.Writer) error {
	var probes []*probe
	defer func() {
		for _, p := range probes {
			p.close()
		}
	}()
	for deadline := time.Now().Add(s.Budget); ; {
		// What has to be proved may grow: IPv6 rules come with an address.
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
		switch still := unproved(missing); {
		case len(still) < len(missing):
			continue
		case ctx.Err() != nil || time.Until(deadline) < pause:
			return s.failure(still)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// newProbes are for the families that have to be captured and are not among
// the known ones.
func (s Settings) newProbes(ctx context.Context, known []*probe) ([]*probe, error) {
	pod, err := lookAround()
	if err != nil {
		return nil, err
	}
	families := pod.families(s.Families)
	if len(families) == 0 {
		return nil, &Failure{CodeNotTried, errors.New("the pod has no address that others could reach")}
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

// failure tells what was not proved. Where not one connection could be tried,
// nothing is known of the rules.
func (s Settings) failure(missing []*probe) error {
	code := CodeNotTried
	var reasons []string
	for _, p := range missing {
		if !p.untried() {
			code = s.Direction.code()
		}
		reasons = append(reasons, fmt.Sprintf("%s: %v", p.family, p.err))
	}
	return &Failure{code, fmt.Errorf("%s traffic is not captured (waited %s, running with uid %d and gid %d): %s",
		s.Direction, s.Budget, os.Getuid(), os.Getgid(), strings.Join(reasons, "; "))}
}
