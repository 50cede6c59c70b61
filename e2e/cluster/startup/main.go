// SPDX-License-Identifier: Apache-2.0

// Command startup measures how soon real pods start on a Kubernetes: outside the mesh,
// captured by capture-cni, by istio-cni, and by istio-init as an init container; and what the
// agents ask the API server for. It prints, and asserts nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/tables"
)

// away is how late an API server answers that is far away.
const away = 500 * time.Millisecond

// measuredNodes are the first of the cluster's three, on which pods are timed.
const measuredNodes = 2

func main() {
	crowd := flag.Int("crowd", 100, "pods at once, on one node")
	alone := flag.Int("alone", 20, "pods one after the other")
	rest := flag.Duration("rest", 15*time.Minute, "for how long to count what agents at rest ask")
	out := flag.String("out", "", "write the tables as JSON to this file, too")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *out, &startup{crowd: *crowd, alone: *alone, rest: *rest}); err != nil {
		fmt.Fprintln(os.Stderr, "startup:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out string, s *startup) (err error) {
	dir, err := os.MkdirTemp("", "cluster-")
	if err != nil {
		return err
	}
	project, err := lab.Project(ctx)
	if err != nil {
		return err
	}
	s.Cluster, err = cluster.Start(ctx, dir, filepath.Join(project, "bin/parts"), cluster.Ptp, cluster.Containerd2, cluster.CRIO, cluster.Debian1)
	defer func() { err = errors.Join(err, s.Stop(), os.RemoveAll(dir)) }()
	if err != nil {
		return err
	}
	if err := errors.Join(s.LoadAgentImage(ctx, "v1"), s.LoadIstioImages(ctx, "proxyv2", "install-cni")); err != nil {
		return err
	}
	if s.api, err = s.API(); err != nil {
		return err
	}
	lines := []string{"RUNTIME\tAPI SERVER\tCAPTURED BY\tPODS\tp50 ms\tp90 ms\tp99 ms\tPODS A SECOND\tCPU OF A POD ms"}
	for _, delay := range []time.Duration{0, away} {
		measured, err := s.measureAll(ctx, delay)
		if err != nil {
			return err
		}
		lines = append(lines, measured...)
	}
	if err := errors.Join(s.Print(lines...), s.measureAsked(ctx)); err != nil {
		return err
	}
	if out != "" {
		return s.Write(out)
	}
	return nil
}

// startup has the cluster, how many pods it starts, and for how long agents rest.
type startup struct {
	*cluster.Cluster
	tables.Tables
	api          *rest.RESTClient
	crowd, alone int
	rest         time.Duration
}

// measureAll measures each way of capture, with an API server that answers after a delay
// what agents, plugins and lookup programs ask.
func (s *startup) measureAll(ctx context.Context, delay time.Duration) (lines []string, err error) {
	if delay > 0 {
		for _, node := range s.Nodes {
			var restore func() error
			if restore, err = node.SlowAPI(ctx, delay); err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, restore()) }()
		}
	}
	for _, way := range ways {
		if err := way.install(ctx, s.Cluster); err != nil {
			return nil, fmt.Errorf("installing what captures by %s: %w", way.name, err)
		}
		for _, node := range s.Nodes[:measuredNodes] {
			for _, pods := range []struct{ n, atOnce int }{{s.alone, 1}, {s.crowd, s.crowd}} {
				line, err := s.measure(ctx, way, node, delay, pods.n, pods.atOnce)
				if err != nil {
					return nil, fmt.Errorf("%s on %s: %w", way.name, node.Runtime, err)
				}
				lines = append(lines, line)
			}
		}
		if err := way.remove(ctx, s.Cluster); err != nil {
			return nil, err
		}
	}
	return lines, nil
}
