// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podlookup"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// check compares the pod's namespace with what it is to hold. A pod whose CHECK
// fails at a start of CRI-O loses its address, and the kubelet ends it: so what
// can't be compared is no fault while rules of ours are there.
func check(args *skel.CmdArgs, stderr io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	r, err := newRequest(args, stderr)
	if err != nil {
		return err
	}
	r.singleAttempt = true // CRI-O starts when all its pods were checked, one by one
	p, err := r.decide(ctx)
	if p == nil || err != nil {
		return r.excuse(ctx, err)
	}
	differences, err := p.differences(ctx)
	if err := closing(p.netns, err); err != nil {
		return fmt.Errorf("checking pod %s: %w", r.pod, err)
	}
	if len(differences) > 0 {
		return fmt.Errorf("the rules of pod %s are not what they should be:\n%s", r.pod, strings.Join(differences, "\n"))
	}
	return nil
}

// excuse forgives what a captured pod is not to blame for: an API server that
// does not answer, annotations that were edited, and a refusal that is newer than
// the pod, of its runtime class for example.
func (r request) excuse(ctx context.Context, err error) error {
	if !isA[podlookup.Error](err) && !isA[capture.BadInput](err) && !isA[capture.Refusal](err) {
		return err
	}
	netns, openErr := podnet.Open(ctx, r.netns)
	if openErr != nil {
		return errors.Join(err, openErr)
	}
	state, stateErr := netns.State(ctx)
	if stateErr = closing(netns, stateErr); stateErr != nil || !capture.IsStamp(state.Stamp) {
		return errors.Join(err, stateErr)
	}
	r.log.Warn("the pod's rules are there, and were not compared", "stamp", state.Stamp, "error", err)
	return nil
}

// differences are from what ADD installs. Rules of ours that
// another version made, or for annotations that were edited since, can't be
// compared: the pod has what it was to get when it was made.
func (p plan) differences(ctx context.Context) ([]string, error) {
	state, err := p.netns.State(ctx)
	if err != nil {
		return nil, err
	}
	rules, own := capture.Rules(p.intent).StampedAs(state.Stamp)
	if capture.IsStamp(state.Stamp) && !own {
		return nil, nil
	}
	return p.netns.Check(ctx, rules, p.backend)
}
