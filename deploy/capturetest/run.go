// SPDX-License-Identifier: Apache-2.0

package capturetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/report"
)

// run is the test of one mode between two nodes.
type run struct {
	*Test
	mode     Mode
	id       string
	step     string       // the mode's number and name
	until    time.Time    // from which another test may remove the objects
	nodes    []fleet.Node // of client and server
	image    string
	settings config.NetConf
	report   *Report

	ports     ports
	namespace string   // namespace of the pods
	created   []object // objects that may exist and must be removed
}

// obstacle is an error that prevents the checks of a mode. The report contains the obstacle as the
// result of all these checks.
type obstacle report.Finding

func (o obstacle) Error() string { return o.Reason }

// failed returns an obstacle for a pod of the test that failed.
func failed(code report.Code, reason, next string) error {
	return obstacle{Code: code, Severity: report.Problem, Reason: reason, Next: next}
}

const nextImage = "if the agents are older than this plugin, set --image"

// do runs the checks of the mode, adds the results to the report, and removes the objects that it
// created.
func (r *run) do(ctx context.Context) (err error) {
	r.ports = choosePorts(r.settings.Capture.Mesh)
	r.namespace = cmp.Or(r.Namespace, "capture-cni-test-"+r.id+"-"+strings.ToLower(string(r.mode)))
	defer func() { err = errors.Join(err, r.cleanUp(ctx)) }()
	checks, observations, err := r.connect(ctx)
	var reason obstacle
	switch {
	case errors.As(err, &reason):
		r.add("", "", report.Finding(reason))
	case err != nil:
		return err
	default:
		r.verify(ctx, checks, observations)
	}
	r.packArchive(ctx)
	return ctx.Err()
}

func (r *run) add(family, check string, found report.Finding) {
	r.report.Results = append(r.report.Results, Result{r.nodes[0].Name, r.nodes[1].Name, r.mode, family, check, found})
}

func (r *run) cleanUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	r.Progress("%s: removing the test's pods", r.step)
	return r.remove(ctx, r.created...)
}

// connect starts the pods, and returns the checks and the client's observations.
func (r *run) connect(ctx context.Context) ([]check, []report.TestObservation, error) {
	if r.Namespace == "" {
		r.Progress("%s: creating namespace %s", r.step, r.namespace)
		if _, err := create(ctx, r, newNamespace(r.namespace, r.mode, r.until)); err != nil {
			return nil, nil, err
		}
	}
	service, err := create(ctx, r, r.service())
	if err != nil {
		return nil, nil, err
	}
	server, err := r.start(ctx, r.server(), podState.isRunning)
	if err != nil {
		return nil, nil, err
	}
	checks := newChecks(podAddresses(server), addresses(service.Spec.ClusterIPs), r.ports, r.settings.Capture)
	client, err := r.start(ctx, r.client(checks), podState.hasEnded)
	if err != nil {
		return nil, nil, err
	}
	observations, err := report.DecodeTest(stateOf(client).application.Message)
	if err != nil {
		return nil, nil, failed(report.TestPodFailed, err.Error(), nextImage)
	}
	return checks, observations, nil
}

// refusal returns an obstacle if the API server refused a request, and otherwise the error.
func (r *run) refusal(err error) error {
	if !isRefused(err) {
		return err
	}
	next := permissionHint + "; or set --namespace to a namespace in which you may create pods, and nothing injects them"
	if r.mode == TProxy {
		next = "if pods may not have NET_ADMIN there, use --mode redirect"
	}
	return obstacle(skipped(err.Error(), next))
}

// start creates a pod, and waits until done returns true for the pod's state. It returns an obstacle if
// the API server refuses the pod, admission changes it, it fails, or done does not return true in time.
func (r *run) start(ctx context.Context, pod *corev1.Pod, done func(podState) bool) (*corev1.Pod, error) {
	r.Progress("%s: starting pod %s on node %s", r.step, pod.Name, pod.Spec.NodeName)
	limited, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	created, err := r.createPod(limited, pod)
	if err != nil {
		return nil, err
	}
	if difference := changed(pod, created); difference != "" {
		return nil, obstacle(skipped(difference, "set --namespace to a namespace in which nothing injects pods"))
	}
	seen, last := created, ""
	for {
		current := &corev1.Pod{}
		err := r.Client.Get(limited, r.namespace, pod.Name, current)
		state := stateOf(current)
		switch {
		case isRefused(err):
			return nil, fmt.Errorf("reading pod %s: %w", pod.Name, err)
		case err != nil:
		case done(state):
			return current, nil
		case state.ended != "":
			return nil, failed(report.TestPodFailed, "pod "+pod.Name+": "+state.ended, nextImage)
		default:
			seen = current
			if state.progress != last {
				last = state.progress
				r.Progress("%s: pod %s: %s", r.step, pod.Name, last)
			}
		}
		if r.sleep(limited) == nil {
			continue
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, r.late(ctx, seen)
	}
}

// createPod creates a pod. In a new namespace, it retries until the service account exists.
func (r *run) createPod(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	for {
		created, err := create(ctx, r, pod)
		if err == nil || !strings.Contains(err.Error(), `serviceaccount "default" not found`) || r.sleep(ctx) != nil {
			return created, err
		}
	}
}

// late returns an obstacle that says why a pod did not start, or did not end, in time.
func (r *run) late(ctx context.Context, pod *corev1.Pod) error {
	state := stateOf(pod)
	text := fmt.Sprintf("pod %s on node %s did not %s within %s: ", pod.Name, pod.Spec.NodeName,
		map[bool]string{false: "start", true: "end"}[state.running], r.Timeout)
	if state.waiting != "" {
		return failed(report.TestPodFailed, text+state.waiting,
			"if the node can't pull the image, set --image, or --namespace to a namespace that has the image's pull Secret")
	}
	e, err := r.Explain(ctx, r.namespace, pod.Name)
	if err != nil {
		return failed(report.TestPodFailed, text+err.Error(), "kubectl capture-cni status")
	}
	return failed(e.Finding.Code, text+e.Finding.Reason, e.Finding.Next)
}

// packArchive packs a support archive after the first mode with a failed check, while the mode's pods
// exist.
func (r *run) packArchive(ctx context.Context) {
	if r.report.Archive != "" || r.report.Count(Failed) == 0 || ctx.Err() != nil {
		return
	}
	nodes := []string{r.nodes[0].Name}
	if r.nodes[1].Name != nodes[0] {
		nodes = append(nodes, r.nodes[1].Name)
	}
	r.Progress("packing a report of %s", strings.Join(nodes, " and "))
	path, err := r.Archive(ctx, nodes)
	if err != nil {
		r.report.Notes = append(r.report.Notes, "no report was packed: "+err.Error())
		return
	}
	r.report.Archive = path
}
