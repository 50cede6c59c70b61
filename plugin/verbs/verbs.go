// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podnet"
	"github.com/capture-cni/capture-cni/plugin/record"
	"github.com/capture-cni/capture-cni/plugin/trust"
)

// Deadlines of a whole call. That of ADD exceeds the longest lookupTimeout, but is shorter than the
// kubelet's default of 4 minutes, whose error would not name the cause. CHECK needs seconds for its lookup.
// The rest of checkTimeout is for a slow comparison on a busy node, because after a restart of CRI-O, the
// kubelet replaces the sandbox of a pod whose CHECK failed.
const (
	addTimeout    = 150 * time.Second
	checkTimeout  = 30 * time.Second
	delTimeout    = 2 * time.Second
	statusTimeout = 10 * time.Second
)

// Add executes ADD, and sends the record.
func (p Plugin) Add(args *skel.CmdArgs, stderr io.Writer) ([]byte, error) {
	r, err := p.newRequest(args, stderr)
	var output []byte
	if err == nil {
		output, err = protect(r.capturePod, stderr) // so that the record contains a panic, too
	}
	r.recorder.send(p.Send, r.input.AgentSocket(), err)
	return output, err
}

// capturePod captures the pod's traffic unless the pod is exempt, and returns the CNI result.
func (r request) capturePod() ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), addTimeout)
	defer cancel()
	p, err := r.decide(ctx)
	r.recorder.lap(record.Deciding)
	if err != nil {
		return nil, err
	}
	if p != nil {
		r.recorder.Backend = string(p.backend)
		rules, err := r.apply(ctx, *p)
		err = errors.Join(err, p.netns.Close())
		r.recorder.lap(record.Committing)
		if err != nil {
			return nil, fmt.Errorf("capturing pod %s: %w", r.pod, err)
		}
		r.recorder.Verdict, r.recorder.Stamp = record.Captured, rules.Stamp()
		r.log.Info("captured", "backend", p.backend, "ipv6", rules.IPv6, "took", time.Since(r.recorder.Time).Round(time.Millisecond/10))
	}
	return result(r.input)
}

// apply applies the plan's rules in the pod's network namespace, and returns the applied rules. If the
// rules refuse IPv6, and the kernel lacks a module that this needs, apply lets IPv6 pass, with a
// warning.
func (r request) apply(ctx context.Context, p plan) (capture.Ruleset, error) {
	rules := p.Rules.WithStamp()
	err := p.netns.Apply(ctx, rules, p.backend)
	if missing, ok := errors.AsType[podnet.NoIPv6](err); ok && rules.IPv6 == capture.Refused {
		r.warn("IPv6 connections of the pod are not refused: " + missing.Error())
		p.Intent.IPv6 = capture.Ignored
		rules = capture.Rules(p.Intent).WithStamp()
		err = p.netns.Apply(ctx, rules, p.backend)
	}
	return rules, err
}

// result returns the bytes of prevResult or, if no plugin precedes this one in the list, an empty
// result.
func result(in config.Input) ([]byte, error) {
	if previous := in.PrevResult(); previous != nil {
		return append(previous, '\n'), nil
	}
	empty, err := (&current.Result{CNIVersion: current.ImplementedSpecVersion}).GetAsVersion(in.CNIVersion())
	if err != nil {
		return nil, fmt.Errorf("converting an empty result: %w", err)
	}
	var out bytes.Buffer
	err = empty.PrintTo(&out)
	return out.Bytes(), err
}

// del removes our rules if the namespace still exists. It only logs failures, because a failing DEL
// blocks the pod's deletion, and the kernel deletes the rules with the namespace anyway.
func del(netns string, log *slog.Logger) {
	if netns == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), delTimeout)
	defer cancel()
	lockCtx, cancelLock := context.WithTimeout(ctx, delTimeout/2)
	defer cancelLock()
	n, err := podnet.OpenForRemoval(lockCtx, netns)
	if err == nil {
		err = errors.Join(n.Remove(ctx), n.Close())
	}
	if err != nil && !errors.Is(err, podnet.ErrGone) {
		log.Warn("removing the rules failed; they end with the network namespace", "netns", netns, "error", err)
	}
}

// status examines only this node. In mode strict, it returns an error if meshed pods could not start.
// In mode lenient, it returns an error only for stdin that is no JSON object.
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
	if err := trust.CheckPaths(conf); err != nil {
		return err
	}
	_, err = podnet.Probe(ctx, "", conf.Backend, conf.Capture.Meshes, podnet.NoFeature)
	if err := errors.Join(lookupFrom(conf).CheckWays(ctx), err); err != nil {
		return types.NewError(types.ErrPluginNotAvailable, "meshed pods can't start: "+err.Error(), "")
	}
	return nil
}
