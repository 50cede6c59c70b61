// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
	"github.com/capture-cni/capture-cni/plugin/podnet"
	"github.com/capture-cni/capture-cni/plugin/record"
	"github.com/capture-cni/capture-cni/plugin/trust"
)

// annotationConfigSource is an annotation that the kubelet sets on every pod that it runs. Its presence
// shows that the runtime passed all annotations of the pod.
const annotationConfigSource = "kubernetes.io/config.source"

// Plugin contains the functions by which ADD and CHECK use other processes and the pod's network namespace.
// Simulations replace these functions.
type Plugin struct {
	Look func(lookup.Lookup, context.Context, capture.PodRef) (lookup.Answer, error)
	Open func(ctx context.Context, netns string) (Namespace, error)
	Send func(socket string, r record.Record) (received bool)
}

// Namespace is a pod's network namespace, as podnet.Open returns it.
type Namespace interface {
	Addresses() ([]netip.Addr, error)
	Apply(ctx context.Context, rules capture.Ruleset, backend config.Backend) error
	Observe(ctx context.Context, routes bool) (podnet.Observation, error)
	LockFault() error
	Close() error
}

func open(ctx context.Context, netns string) (Namespace, error) { return podnet.Open(ctx, netns) }

// realPlugin is the Plugin that a runtime calls.
var realPlugin = Plugin{lookup.Lookup.Pod, open, record.Send}

// request is one ADD or CHECK.
type request struct {
	plugin   Plugin
	input    config.Input
	pod      capture.PodRef
	netns    string
	log      *slog.Logger
	recorder *recorder

	annotations map[string]string // those that the runtime passed; nil if it passed none

	isCheck bool // CHECK does not retry the lookup, and the pod should have its rules
}

// newRequest reads the request's input. If it returns an error, the request contains the parts that
// could be read, for the record of the failure.
func (p Plugin) newRequest(args *skel.CmdArgs, stderr io.Writer) (request, error) {
	r := request{plugin: p, netns: args.Netns, recorder: newRecorder(args.ContainerID)}
	var err error
	if r.input, err = config.Read(args.StdinData); err != nil { // a runtime's call does not get here, because skel refuses such stdin
		return r, failure{err, types.ErrDecodingFailure, capture.ReasonInput}
	}
	r.annotations = r.input.PodAnnotations()
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: r.input.LogLevel()}))
	if r.pod, err = parseIdentity(args.Args); err != nil {
		return r, err
	}
	r.log = log.With("pod", r.pod.String())
	if r.recorder.Trace != "" {
		r.log = r.log.With("trace", r.recorder.Trace)
	}
	r.recorder.Pod = r.pod
	return r, nil
}

// passReason returns the reason if the pod is certainly not captured, and "" if a lookup must decide.
// It needs no credentials and no valid configuration, because a fault of capture-cni must not fail pods
// outside the mesh.
func (r request) passReason() capture.Reason {
	if r.pod.Name == "" {
		return capture.ReasonNotKubernetes
	}
	source := r.annotations[annotationConfigSource]
	known := source != "" // otherwise, the runtime may have omitted other annotations, too
	meshed := known && capture.Meshed(r.annotations, r.input.Meshes())
	if r.input.ExcludesNamespace(r.pod.Namespace) {
		if meshed {
			r.warn("the pod has annotations of a mesh or a fence, but its namespace is excluded: it runs uncaptured")
			return capture.ExemptReason(capture.NamespaceExcluded)
		}
		return capture.ReasonNamespaceExcluded
	}
	switch {
	case source == "file" || source == "http":
		return capture.ReasonStaticPod
	case known && !meshed:
		return capture.ReasonNotInjected
	case !known && isStaticUID(r.pod.UID):
		return capture.ReasonStaticPod
	}
	return ""
}

// plan is the desired state of a pod's network namespace.
type plan struct {
	capture.Decision // has no Exemption
	backend          config.Backend
	netns            Namespace // the caller closes it
}

// decide returns the plan for the pod, or nil if the pod is not captured.
func (r request) decide(ctx context.Context) (*plan, error) {
	switch reason := r.passReason(); {
	case reason == capture.ReasonStaticPod && capture.MarkedByAuthor(r.annotations, r.input.Meshes()):
		return nil, capture.Refusal("a static pod with annotations capture-cni.io/ would run uncaptured: " +
			"the API server may not know it at its start")
	case reason != "":
		r.recorder.passed(reason, "")
		r.log.Debug("not captured", "reason", reason)
		return nil, nil
	}
	conf, warnings, err := r.input.NetConf()
	for _, warning := range warnings { // a warning about the node does not belong in the pod's record
		r.log.Warn(warning)
	}
	if err != nil {
		return nil, err
	}
	if err := trust.CheckPaths(conf); err != nil {
		return nil, err
	}
	r.recorder.lap(record.Deciding)
	pods := lookupFrom(conf)
	pods.SingleAttempt, pods.Log = r.isCheck, r.log
	found, err := r.plugin.Look(pods, ctx, r.pod)
	r.recorder.lap(record.LookingUp)
	if err != nil {
		return nil, err
	}
	r.recorder.Pod.UID = found.UID
	decision, err := capture.Decide(*found.Pod, conf.Capture)
	r.warn(decision.Warnings...)
	switch {
	case err != nil:
		return nil, fmt.Errorf("pod %s: %w", r.pod, err)
	// In these cases, the runtime's annotations contradict the looked-up pod. CHECK accepts that, because the
	// pod may have been edited since ADD, and the kubelet replaces a sandbox whose CHECK fails.
	case !r.isCheck && decision.Exemption.Cause == capture.NotInjected && capture.Meshed(r.annotations, r.input.Meshes()),
		!r.isCheck && decision.Intent.Fence == nil && capture.Fenced(r.annotations):
		return nil, failure{errors.New("the runtime passes annotations of a mesh or a fence, and the pod that was looked up has none: " +
			"the agent may be of an earlier release, and not have replaced the plugin yet"), types.ErrTryAgainLater, capture.ReasonLookup}
	case decision.Exemption.Cause != "":
		r.recordExemption(decision.Exemption)
		return nil, nil
	}
	netns, err := r.plugin.Open(ctx, r.netns)
	if err != nil {
		return nil, err
	}
	if fault := netns.LockFault(); fault != nil { // a fault of the node does not belong in the pod's record
		r.log.Warn("continuing without a lock of the network namespace", "reason", fault)
	}
	if decision, err = r.withAddresses(netns, decision); err != nil {
		return nil, errors.Join(fmt.Errorf("pod %s: %w", r.pod, err), netns.Close())
	}
	return &plan{decision, conf.Backend, netns}, nil
}

// withAddresses adds the addresses in the pod's network namespace to a decision, so that Decision.At can make
// the rules.
func (r request) withAddresses(netns Namespace, decision capture.Decision) (capture.Decision, error) {
	addresses, err := netns.Addresses()
	if err != nil {
		return decision, err
	}
	decision, err = podnet.Complete(decision, addresses)
	for _, note := range decision.Notes {
		r.log.Info(note)
	}
	r.recorder.Notes = decision.Notes
	return decision, err
}

// lookupFrom returns a lookup with the configuration's settings. The lookup asks the agent only if the
// configuration names the agent's socket.
func lookupFrom(conf config.NetConf) lookup.Lookup {
	pods := lookup.Lookup{Program: lookup.ProgramPath(), Directory: filepath.Dir(conf.Kubeconfig), Timeout: conf.LookupTimeout}
	if conf.AgentSocket != "" {
		pods.Agent.Socket = config.PodsSocket(conf.AgentSocket)
	}
	return pods
}

// recordExemption records why a pod that was looked up is not captured. It logs pods in the mesh at
// level Info, because the operator wants to know about them.
func (r request) recordExemption(exemption capture.Exemption) {
	if exemption.Cause == capture.NotInjected {
		r.recorder.passed(capture.ReasonNotInjected, exemption.Message)
		r.log.Debug("not captured", "reason", exemption.Message)
		return
	}
	r.recorder.passed(capture.ExemptReason(exemption.Cause), exemption.Message)
	r.log.Info("in the mesh, and exempt from capture", "cause", exemption.Cause, "reason", exemption.Message)
}

// warn logs warnings about the pod and adds them to its record.
func (r request) warn(warnings ...string) {
	for _, w := range warnings {
		r.log.Warn(w)
	}
	r.recorder.Warnings = append(r.recorder.Warnings, warnings...)
}
