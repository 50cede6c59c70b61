// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podlookup"
	"github.com/capture-cni/capture-cni/plugin/podnet"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// annotationConfigSource is written by the kubelet itself on every pod that it
// runs: where it stands, the runtime handed over all of a pod's annotations.
const annotationConfigSource = "kubernetes.io/config.source"

// request is one ADD or CHECK.
type request struct {
	input    config.Input
	pod      record.PodRef
	netns    string
	log      *slog.Logger
	recorder *recorder

	singleAttempt bool // of the lookup
}

// newRequest gives what could be read, with an error too.
func newRequest(args *skel.CmdArgs, stderr io.Writer) (request, error) {
	r := request{netns: args.Netns, recorder: newRecorder(args.ContainerID)}
	var err error
	if r.input, err = config.Read(args.StdinData); err != nil {
		return r, failure{err, types.ErrDecodingFailure, record.Input}
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: r.input.LogLevel()}))
	if r.pod, err = parseIdentity(args.Args); err != nil {
		return r, err
	}
	r.log = log.With("pod", r.pod.String())
	r.recorder.Pod = r.pod
	return r, nil
}

// passed gives the reason why the pod is not ours, as far as that can be told
// without API, credentials or a sane configuration; "" where it can't.
func (r request) passed() record.Reason {
	if r.pod.Name == "" {
		return record.NotKubernetes
	}
	annotations, known := r.input.PodAnnotations()
	source := annotations[annotationConfigSource]
	// Annotations without the kubelet's own mark may be incomplete, and say nothing.
	known = known && source != ""
	if r.input.ExcludesNamespace(r.pod.Namespace) {
		if known && capture.Meshed(annotations) {
			r.warn("the pod was injected but its namespace is excluded: it runs uncaptured")
			return record.Exempt(capture.NamespaceExcluded)
		}
		return record.NamespaceExcluded
	}
	switch {
	case known && (source == "file" || source == "http"):
		return record.StaticPod
	case known && !capture.Meshed(annotations):
		return record.NotInjected
	case !known && isStaticUID(r.pod.UID):
		return record.StaticPod
	}
	return ""
}

// plan is what a pod's namespace is to hold.
type plan struct {
	intent  capture.Intent
	backend config.Backend
	netns   *podnet.Namespace // the caller closes it
}

// decide gives nil for a pod that is none of ours.
func (r request) decide(ctx context.Context) (*plan, error) {
	if reason := r.passed(); reason != "" {
		r.recorder.passed(reason, "")
		r.log.Debug("left alone", "reason", reason)
		return nil, nil
	}
	conf, warnings, err := r.input.NetConf()
	for _, warning := range warnings { // not the pod's business
		r.log.Warn(warning)
	}
	if err != nil {
		return nil, err
	}
	if err := podlookup.TrustPaths(conf); err != nil {
		return nil, err
	}
	r.recorder.lap(record.Deciding)
	lookup := podlookup.Lookup{Directory: filepath.Dir(conf.Kubeconfig), Timeout: conf.LookupTimeout, SingleAttempt: r.singleAttempt, Log: r.log}
	pod, err := lookup.Pod(ctx, r.pod)
	r.recorder.lap(record.LookingUp)
	if err != nil {
		return nil, err
	}
	r.recorder.Pod.UID = string(pod.UID)
	var netns *podnet.Namespace
	decision, err := capture.Decide(capture.PodOf(pod), conf.Capture, func() (_ []netip.Addr, err error) {
		if netns, err = podnet.Open(ctx, r.netns); err != nil {
			return nil, err
		}
		return netns.Addresses()
	})
	r.warn(decision.Warnings...)
	switch {
	case err != nil && netns == nil:
		return nil, err
	case err != nil:
		return nil, closing(netns, fmt.Errorf("pod %s: %w", r.pod, err))
	case decision.Exemption.Cause != "":
		r.leave(decision.Exemption)
		return nil, nil
	}
	return &plan{decision.Intent, conf.Backend, netns}, nil
}

// leave records a pod that was looked up and is not captured. In the mesh, that
// is the operator's concern.
func (r request) leave(exemption capture.Exemption) {
	if exemption.Cause == capture.NotInjected {
		r.recorder.passed(record.NotInjected, exemption.Message)
		r.log.Debug("left alone", "reason", exemption.Message)
		return
	}
	r.recorder.passed(record.Exempt(exemption.Cause), exemption.Message)
	r.log.Info("in the mesh, and exempt from capture", "cause", exemption.Cause, "reason", exemption.Message)
}

// warn is about the pod.
func (r request) warn(warnings ...string) {
	for _, w := range warnings {
		r.log.Warn(w)
	}
	r.recorder.Warnings = append(r.recorder.Warnings, warnings...)
}
