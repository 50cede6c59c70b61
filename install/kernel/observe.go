// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/trace"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// Observation is what one visit to a pod's namespace found.
type Observation struct {
	podnet.Observation        // zero if the generation is Question.Seen
	Digest             string // of the rules
	Generation         uint32 // before anything else was read
	Refused            uint64 // packets, by our rules
	RefusedFault       error  // why that is not known
	Obstruction        string // what could keep packets from our rules; empty for nothing
	ObstructionFault   error  // why that is not known
	Traced             Traced
}

// Question is what an Observation is made for.
type Question struct {
	Seen   uint32 // generation whose rules are known; zero for none
	Routes bool   // of TPROXY
	Packet *trace.Packet
}

// Observe reads the namespace in one visit, and changes nothing. It reads the generation
// first: what changes later is found by the next visit.
func Observe(ctx context.Context, n *podnet.Namespace, q Question) (o Observation, err error) {
	err = n.Do(func() error {
		if o.Generation, err = generation(ctx); err != nil {
			return err
		}
		if o.Generation != q.Seen {
			if err := o.read(ctx, q); err != nil {
				return err
			}
		}
		o.Refused, o.RefusedFault = refused(ctx)
		return nil
	})
	return o, err
}

func (o *Observation) read(ctx context.Context, q Question) (err error) {
	if o.Observation, err = podnet.Observe(ctx, q.Routes); err != nil {
		return err
	}
	o.Digest = digestOf(o.Rules)
	if o.Backend == config.NFTables { // tables of iptables are shared with other plugins
		o.Obstruction, o.ObstructionFault = obstruction(ctx)
		if tooLarge, ok := errors.AsType[nfnetlink.TooLarge](o.ObstructionFault); ok {
			o.Obstruction, o.ObstructionFault = tooLarge.Error()+" in tables in front of the capture rules: they are not read", nil
		}
	}
	if q.Packet != nil {
		o.Traced = traced(ctx, *q.Packet)
	}
	return nil
}
