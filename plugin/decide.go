// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podnet"
	"github.com/capture-cni/capture-cni/plugin/report"
)

// annotationConfigSource is written by the kubelet itself on every pod that it
// runs: where it stands, the runtime handed over all of a pod's annotations.
const annotationConfigSource = "kubernetes.io/config.source"

// request is one ADD or CHECK.
type request struct {
	input config.Input
	pod   podIdentity
	netns string
	log   *slog.Logger
	story *story

	hurried bool // one attempt at a lookup has to do
}

// newRequest gives what could be read, with an error too.
func newRequest(args *skel.CmdArgs, stderr io.Writer) (request, error) {
	r := request{netns: args.Netns, story: newStory(args.ContainerID)}
	var err error
	if r.input, err = config.Read(args.StdinData); err != nil {
		return r, types.NewError(types.ErrDecodingFailure, err.Error(), "")
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: r.input.LogLevel()}))
	if r.pod, err = parseIdentity(args.Args); err != nil {
		return r, err
	}
	r.log = log.With("pod", r.pod.String())
	r.story.isOf(r.pod)
	return r, nil
}

// passed gives the reason why the pod is not ours, as far as that can be told
// without API, credentials or a sane configuration; "" where it can't.
func (r request) passed() report.Reason {
	if r.pod.Name == "" {
		return report.NotKubernetes
	}
	annotations, known := r.input.PodAnnotations()
	source := annotations[annotationConfigSource]
	// Annotations without the kubelet's own mark may be incomplete, and say nothing.
	known = known && source != ""
	if r.input.ExcludesNamespace(r.pod.Namespace) {
		if known && capture.Meshed(annotations) {
			r.warn("the pod was injected but its namespace is excluded: it runs uncaptured")
			return report.Exempt(capture.NamespaceExcluded)
		}
		return report.NamespaceExcluded
	}
	switch {
	case known && (source == "file" || source == "http"):
		return report.StaticPod
	case known && !capture.Meshed(annotations):
		return report.NotInjected
	case !known && isStaticUID(r.pod.UID):
		return report.StaticPod
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
		r.story.passed(reason, "")
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
	if err := trustPaths(conf); err != nil {
		return nil, err
	}
	r.story.lap(report.Deciding)
	pod, err := lookup(ctx, conf, r.pod, r.hurried, r.log)
	r.story.lap(report.LookingUp)
	if err != nil {
		return nil, err
	}
	r.story.Pod.UID = string(pod.UID)
	if exemption := capture.Exclusion(pod); exemption.Cause != "" {
		r.leave(exemption)
		return nil, nil
	}
	netns, err := podnet.Open(ctx, r.netns)
	if err != nil {
		return nil, err
	}
	addresses, err := netns.Addresses()
	if err != nil {
		return nil, closing(netns, err)
	}
	intent, warnings, err := capture.Decide(pod, conf.Capture, addresses)
	r.warn(warnings...)
	if err != nil {
		return nil, closing(netns, fmt.Errorf("pod %s: %w", r.pod, err))
	}
	return &plan{intent, conf.Backend, netns}, nil
}

// leave records a pod that was looked up and is not captured. In the mesh, that
// is the operator's concern.
func (r request) leave(exemption capture.Exemption) {
	if exemption.Cause == capture.NotInjected {
		r.story.passed(report.NotInjected, exemption.Message)
		r.log.Debug("left alone", "reason", exemption.Message)
		return
	}
	r.story.passed(report.Exempt(exemption.Cause), exemption.Message)
	r.log.Info("in the mesh, and exempt from capture", "cause", exemption.Cause, "reason", exemption.Message)
}

// warn is about the pod.
func (r request) warn(warnings ...string) {
	for _, w := range warnings {
		r.log.Warn(w)
	}
	r.story.Warnings = append(r.story.Warnings, warnings...)
}
