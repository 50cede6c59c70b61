// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podlookup"
	"github.com/capture-cni/capture-cni/plugin/podnet"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// Deadlines of a whole call. ADD outlasts the longest lookup; the runtime's own,
// minutes later, would say nothing about the cause. CHECK looks up once, in
// seconds; the rest is for a node so busy that it compares slowly, because a
// CHECK that runs out of time may cost the pod its address.
const (
	addTimeout    = 150 * time.Second
	checkTimeout  = 30 * time.Second
	delTimeout    = 2 * time.Second
	statusTimeout = 10 * time.Second
)

// add answers an ADD and tells the node agent what came of it.
func add(args *skel.CmdArgs, stderr io.Writer) ([]byte, error) {
	r, err := newRequest(args, stderr)
	var answer []byte
	if err == nil {
		answer, err = protect(r.add, stderr)
	}
	r.recorder.tell(r.input.AgentSocket(), err)
	return answer, err
}

// add captures the pod's traffic if it asks for it, and returns the result to print.
func (r request) add() ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), addTimeout)
	defer cancel()
	p, err := r.decide(ctx)
	r.recorder.lap(record.Deciding)
	if err != nil {
		return nil, err
	}
	if p != nil {
		r.recorder.Backend = string(p.backend)
		rules := capture.Rules(p.intent)
		err := closing(p.netns, p.netns.Apply(ctx, rules, p.backend))
		r.recorder.lap(record.Committing)
		if err != nil {
			return nil, fmt.Errorf("capturing pod %s: %w", r.pod, err)
		}
		r.recorder.Verdict, r.recorder.Stamp = record.Captured, rules.Stamp()
		r.log.Info("captured", "backend", p.backend, "ipv6", rules.IPv6, "took", time.Since(r.recorder.Time).Round(time.Millisecond/10))
	}
	return result(r.input)
}

// result is prevResult as it came, or an empty result where no plugin came before.
func result(in config.Input) ([]byte, error) {
	if previous := in.PrevResult(); previous != nil {
		return append(previous, '\n'), nil
	}
	empty, err := (&current.Result{CNIVersion: current.ImplementedSpecVersion}).GetAsVersion(in.CNIVersion())
	if err != nil {
		return nil, fmt.Errorf("making an empty result: %w", err)
	}
	var out bytes.Buffer
	err = empty.PrintTo(&out)
	return out.Bytes(), err
}

// del takes our rules out where the namespace still exists. It has no way to
// fail: a namespace that is gone took them along, and whatever else is wrong
// must not keep a pod from ending.
func del(netns string, log *slog.Logger) {
	if netns == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), delTimeout)
	defer cancel()
	waiting, stop := context.WithTimeout(ctx, delTimeout/2)
	defer stop()
	n, err := podnet.OpenForRemoval(waiting, netns)
	if err == nil {
		err = closing(n, n.Remove(ctx))
	}
	if err != nil && !errors.Is(err, podnet.ErrGone) {
		log.Warn("the rules were left to go with the network namespace", "netns", netns, "error", err)
	}
}

// status reports what a meshed pod would miss, if the operator asked for it.
// It looks at this node only.
func status(args *skel.CmdArgs) error {
	in, err := config.Read(args.StdinData)
	if err != nil {
		return types.NewError(types.ErrDecodingFailure, err.Error(), "")
	}
	if !in.StrictStatus() {
		return nil
	}
	conf, _, err := in.NetConf()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), statusTimeout)
	defer cancel()
	if err := podlookup.TrustPaths(conf); err != nil {
		return err
	}
	access := podlookup.CheckAccess(filepath.Dir(conf.Kubeconfig))
	if err := errors.Join(access, podnet.Probe(ctx, conf.Backend)); err != nil {
		return types.NewError(types.ErrPluginNotAvailable, "meshed pods can't start: "+err.Error(), "")
	}
	return nil
}

// closing closes and keeps both errors.
func closing(c io.Closer, err error) error { return errors.Join(err, c.Close()) }
