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
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

// check compares the pod's network namespace with its desired state. When CRI-O restarts, it runs CHECK
// for every pod, and the kubelet replaces the sandboxes of pods whose CHECK fails. So CHECK passes for a
// pod with our rules if the lookup fails, the annotations are not valid, or the plugin would now refuse
// the pod.
func check(args *skel.CmdArgs, stderr io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	r, err := realPlugin.newRequest(args, stderr)
	if err != nil {
		return err
	}
	r.isCheck = true // while CRI-O restarts, it waits for each pod's CHECK in turn
	p, err := r.decide(ctx)
	if p == nil || err != nil {
		return r.tolerate(ctx, err)
	}
	differences, err := p.differences(ctx)
	if err := errors.Join(err, p.netns.Close()); err != nil { // a Refusal if the programs of the rules' backend are gone
		return r.tolerate(ctx, fmt.Errorf("checking pod %s: %w", r.pod, err))
	}
	if len(differences) > 0 {
		return fmt.Errorf("the network namespace of pod %s differs from the desired state:\n%s", r.pod, strings.Join(differences, "\n"))
	}
	return nil
}

// tolerate returns nil for a pod with our rules if the lookup failed, or if the plugin would now refuse
// the pod or its annotations. Otherwise, it returns the error. Examples of tolerated errors are that the
// API server does not answer, that annotations became invalid by an edit after ADD, or that a newer
// configuration refuses the pod's runtime class.
func (r request) tolerate(ctx context.Context, err error) error {
	if !isA[lookup.Error](err) && !isA[capture.BadInput](err) && !isA[capture.Refusal](err) {
		return err
	}
	netns, openErr := r.plugin.Open(ctx, r.netns)
	if openErr != nil {
		return errors.Join(err, openErr)
	}
	found, stateErr := netns.Observe(ctx, false)
	if stateErr = errors.Join(stateErr, netns.Close()); stateErr != nil || !capture.IsStamp(found.Stamp) {
		return errors.Join(err, stateErr, found.RulesFault)
	}
	r.log.Warn("the pod has rules; CHECK could not compare them", "stamp", found.Stamp, "error", err)
	return nil
}

// differences compares the namespace with the state that ADD would create now, in the backend of the
// existing rules. It returns no differences for rules with another Stamp, because another version of the
// plugin wrote them, or annotations, configuration or addresses were changed after ADD.
func (p plan) differences(ctx context.Context) ([]string, error) {
	rules := p.Rules.WithStamp()
	found, err := p.netns.Observe(ctx, rules.LocalMark != 0)
	if err != nil || capture.IsStamp(found.Stamp) && found.Stamp != rules.Stamp() {
		return nil, err
	}
	return found.Differences(ctx, rules, p.backend)
}
