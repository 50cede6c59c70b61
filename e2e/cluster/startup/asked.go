// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// What the agents' requests are counted in.
const (
	settling    = time.Minute // after an installation
	outage      = time.Minute
	afterOutage = 5 * time.Minute
	rolledOut   = 30 // pods on each node
)

// measureAsked prints what the agents ask the API server for at rest, in a rollout of
// meshed pods, and after an outage.
func (s *startup) measureAsked(ctx context.Context) error {
	if err := s.Install(ctx, "image.tag=v1"); err != nil {
		return err
	}
	asked, err := s.CountAsked(ctx)
	if err != nil {
		return err
	}
	time.Sleep(settling)
	lines := []string{fmt.Sprintf("%d AGENTS\tREQUESTS\tSENT KiB\tRECEIVED KiB\tWHICH", len(s.Nodes))}
	for _, period := range []struct {
		name string
		pass func() error
	}{
		{fmt.Sprintf("at rest, for %s", s.rest), func() error { time.Sleep(s.rest); return nil }},
		{fmt.Sprintf("a rollout of %d meshed pods, and their end", rolledOut*len(s.Nodes)), func() error { return s.rollOut(ctx) }},
		{fmt.Sprintf("an outage of %s, and %s after it", outage, afterOutage), func() error {
			err := s.StopAPI()
			time.Sleep(outage)
			err = errors.Join(err, s.StartAPI(ctx))
			time.Sleep(afterOutage)
			return err
		}},
	} {
		before, err := asked()
		if err != nil {
			return err
		}
		if err := period.pass(); err != nil {
			return fmt.Errorf("%s: %w", period.name, err)
		}
		after, err := asked()
		if err != nil {
			return err
		}
		sum, which := 0, []string{}
		for _, what := range slices.Sorted(maps.Keys(after.Requests)) {
			if n := after.Requests[what] - before.Requests[what]; n > 0 {
				sum, which = sum+n, append(which, fmt.Sprintf("%d %s", n, what))
			}
		}
		lines = append(lines, fmt.Sprintf("%s\t%d\t%.1f\t%.1f\t%s", period.name, sum, kib(after.Sent-before.Sent), kib(after.Received-before.Received), strings.Join(which, ", ")))
	}
	return s.Print(lines...)
}

func kib(bytes int) float64 { return float64(bytes) / 1024 }

// rollOut starts meshed pods on all nodes and removes them.
func (s *startup) rollOut(ctx context.Context) error {
	const namespace = "rollout"
	if err := s.createNamespace(ctx, namespace); err != nil {
		return err
	}
	captured := way{name: "capture-cni", meshed: true}
	var pods []*corev1.Pod
	for _, node := range s.Nodes {
		for i := range rolledOut {
			pods = append(pods, captured.pod(fmt.Sprintf("web-%d-%d", node.Number, i), node.Name))
		}
	}
	_, err := s.start(ctx, namespace, pods)
	return errors.Join(err, s.deleteNamespace(ctx, namespace))
}
