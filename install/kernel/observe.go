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

// Observation contains the results of one visit to a pod's namespace.
type Observation struct {
	podnet.Observation        // zero if the generation equals Question.Seen
	Digest             string // digest of the rules
	Generation         uint32 // read before all other fields
	Counters           Counters
	CountersFault      error  // why Counters is unknown
	Obstruction        string // what could keep packets from our rules in nftables; empty if nothing could, or for iptables
	ObstructionFault   error  // why Obstruction is unknown
	Traced             Traced
}

// Question says what Observe should read.
type Question struct {
	Seen   uint32 // generation whose rules are known, or zero
	Routes bool   // read the routes of TPROXY
	Packet *trace.Packet
}

// Observe reads the namespace and changes nothing. It reads the generation first, so that the next call
// notices changes that happen meanwhile. If the generation equals q.Seen, it reads only the counters.
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
		o.Counters, o.CountersFault = counters(ctx)
		return nil
	})
	return o, err
}

func (o *Observation) read(ctx context.Context, q Question) (err error) {
	if o.Observation, err = podnet.Observe(ctx, q.Routes); err != nil {
		return err
	}
	o.Digest = digestOf(o.Rules)
	if o.Backend == config.NFTables { // tables of iptables also contain the rules of other plugins
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
