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
}

func newRequest(args *skel.CmdArgs, stderr io.Writer) (request, error) {
	input, err := config.Read(args.StdinData)
	if err != nil {
		return request{}, types.NewError(types.ErrDecodingFailure, err.Error(), "")
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: input.LogLevel()}))
	pod, err := parseIdentity(args.Args)
	if err != nil {
		return request{}, err
	}
	return request{input, pod, args.Netns, log.With("pod", pod.String())}, nil
}

// passed gives the reason why the pod is not ours, as far as that can be told
// without API, credentials or a sane configuration; "" where it can't.
func (r request) passed() string {
	if r.pod.Name == "" {
		return "not a Kubernetes pod"
	}
	annotations, known := r.input.PodAnnotations()
	source := annotations[annotationConfigSource]
	// Annotations without the kubelet's own mark may be incomplete, and say nothing.
	known = known && source != ""
	if r.input.ExcludesNamespace(r.pod.Namespace) {
		if known && capture.Meshed(annotations) {
			r.log.Warn("the pod was injected but its namespace is excluded: it runs uncaptured")
		}
		return "the namespace is excluded"
	}
	switch {
	case known && (source == "file" || source == "http"):
		return "static pod"
	case known && !capture.Meshed(annotations):
		return "not injected"
	case !known && isStaticUID(r.pod.UID):
		return "static pod"
	}
	return ""
}

// plan is what a pod's namespace is to hold.
type plan struct {
	rules   capture.Ruleset
	backend capture.Backend
	netns   *podnet.Namespace // the caller closes it
}

// decide gives nil for a pod that is none of ours.
func (r request) decide(ctx context.Context) (*plan, error) {
	if reason := r.passed(); reason != "" {
		r.log.Debug("left alone", "reason", reason)
		return nil, nil
	}
	conf, warnings, err := r.input.NetConf()
	r.warn(warnings)
	if err != nil {
		return nil, err
	}
	pod, err := lookup(ctx, conf, r.pod, r.log)
	if err != nil {
		return nil, err
	}
	if reason := capture.Exclusion(pod); reason != "" {
		level := slog.LevelDebug
		if capture.Meshed(pod.Annotations) {
			level = slog.LevelInfo
		}
		r.log.Log(ctx, level, "left alone", "reason", reason)
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
	r.warn(warnings)
	if err != nil {
		return nil, closing(netns, fmt.Errorf("pod %s: %w", r.pod, err))
	}
	return &plan{capture.Rules(intent), conf.Backend, netns}, nil
}

func (r request) warn(warnings []string) {
	for _, w := range warnings {
		r.log.Warn(w)
	}
}
