// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/install/keeper"
	"github.com/capture-cni/capture-cni/install/kube"
	"github.com/capture-cni/capture-cni/install/node"
	"github.com/capture-cni/capture-cni/install/pods"
	"github.com/capture-cni/capture-cni/install/settings"
)

func runCommand(o *options) *cobra.Command {
	var address, state string
	var force bool
	var u untaint
	var t telemetryFlags
	var l leaseFlags
	command := &cobra.Command{
		Use:   "run",
		Short: "Bring the node into the desired state and keep it there",
		Long: `Bring the node into the desired state and keep it there.

With --state present, the agent keeps the plugin, its credentials and its entry
installed. With --state absent, it removes them, keeps running, and is ready once
the node is clean. The end of the process changes nothing on the node.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if state != "present" && state != "absent" {
				return fmt.Errorf("--state is %q: expected present or absent", state)
			}
			return o.run(command.Context(), address, state, force, u, t, l)
		},
	}
	command.Flags().StringVar(&state, "state", "present", "desired state of the node: present or absent")
	command.Flags().StringVar(&address, "listen", "127.0.0.1:15015", "address of /healthz, /readyz and /metrics")
	command.Flags().BoolVar(&force, "force", false, "with --state absent: remove the entry also while captured pods run on the node")
	u.declare(command.Flags())
	t.declare(command.Flags())
	l.declare(command.Flags())
	return command
}

func (o *options) run(ctx context.Context, address, state string, force bool, u untaint, t telemetryFlags, l leaseFlags) error {
	log, absent := o.log, state == "absent"
	settings, err := o.settings()
	if err != nil {
		return err
	}
	api, url, err := o.api()
	if err != nil && !absent { // a removal needs no API server
		return err
	}
	if settings.Credentials.Server == "" {
		settings.Credentials.Server = url
	}
	runtime, err := o.runtime()
	if err != nil {
		return err
	}
	n := node.New(settings, api, runtime, log)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	answerer, err := o.pods(settings, api, absent, registry, log)
	if err != nil {
		return err
	}
	k := keeper.New(n, answerer.Ready, registry, log)
	server, err := httpServer(address, probes(k, registry), log)
	if err != nil {
		return err
	}
	publish := l.tasks(o, k, settings, state, log)
	if absent {
		clean := func(ctx context.Context) error { return k.Absent(ctx, force) }
		return runTogether(ctx, append(publish, server, clean)...)
	}
	telemetry, err := t.tasks(o, k, settings, answerer.Watches, registry, log)
	if err != nil {
		return err
	}
	untaint, err := u.tasks(o, k, log)
	if err != nil {
		return err
	}
	mounts, err := o.socketDirectories()
	if err != nil {
		return err
	}
	tasks := []task{server, k.Present, untilEnd(k.Preflight), untilDeleted(mounts...)}
	listeners := after(k.Claimed(), append(telemetry, answerer.Serve))
	return runTogether(ctx, slices.Concat(tasks, listeners, untaint, publish)...)
}

// pods returns what answers requests of pods, nil for nothing.
func (o *options) pods(s settings.Node, api *kube.Client, absent bool, registry prometheus.Registerer, log *slog.Logger) (*pods.Server, error) {
	if absent || s.PodsSocket() == "" {
		return nil, nil
	}
	if !s.Credentials.OnNode && (s.Credentials.Pod.Name == "" || s.Credentials.Pod.Namespace == "" || s.Credentials.Pod.UID == "") {
		return nil, errors.New("--token-on-node=false needs the agent's own pod in POD_NAMESPACE, POD_NAME and POD_UID")
	}
	return pods.New(pods.Settings{Socket: s.PodsSocket(), Node: o.nodeName}, api, registry, log), nil
}

// probes serves the kubelet's probes and the metrics.
func probes(keeper *keeper.Keeper, registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		alive := keeper.Alive()
		if !alive {
			w.WriteHeader(http.StatusInternalServerError)
		}
		fmt.Fprintln(w, "alive:", alive)
	})
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, r *http.Request) {
		report := keeper.CurrentReport(r.Context())
		if !report.Good() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintln(w, report)
	})
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}
