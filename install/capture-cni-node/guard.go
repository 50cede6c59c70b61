// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/backend"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/metrics"
	"github.com/capture-cni/capture-cni/install/telemetry"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

func guardCommand(o *options) *cobra.Command {
	var policy, address string
	var update guard.Update
	var round time.Duration
	command := &cobra.Command{
		Use:   "guard",
		Short: "Verify and repair the capture of running pods",
		Long: `Verify and repair the capture of the pods of the mesh that run on the node.

The guard lists the pods through the runtime and compares the rules in each pod's
network namespace with the desired state, which comes from the annotations at the
pod's creation and, with --update annotations, from later edits. With --policy inPlace
it repairs uncaptured and drifted pods, except sandboxed ones; open connections survive
the repair if the kernel allows it, except in fenced pods. With --policy evict it asks
the agent to evict such pods instead, if a controller replaces them. It keeps each pod's
baseline in --run-dir, to detect drift also after a restart.

Needs --cri-socket, the agent's sockets, the pods' network namespaces at the runtime's
paths, and the capabilities SYS_ADMIN and NET_ADMIN. It has no access to the API
server: it asks the agent for pods.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if !slices.Contains(guard.Policies(), guard.Policy(policy)) {
				return fmt.Errorf("--policy is %q: expected inPlace, report or evict", policy)
			}
			return o.guard(command.Context(), address, guard.Settings{Policy: guard.Policy(policy), Update: update, Round: round})
		},
	}
	command.Flags().StringVar(&policy, "policy", string(guard.InPlace),
		"what to do with an uncaptured or drifted pod: inPlace, report or evict")
	declareUpdate(command.Flags(), &update)
	command.Flags().StringVar(&address, "listen", "127.0.0.1:15016", "address of /healthz and /metrics")
	command.Flags().DurationVar(&round, "round", 30*time.Second, "interval of the checks of each pod")
	return command
}

// declareUpdate declares the flag --update. Commands that examine pods also have this flag, so that they
// judge as the guard does. In the guard's container, the flag's environment variable sets it.
func declareUpdate(flags *pflag.FlagSet, update *guard.Update) {
	*update = guard.UpdateNever
	flags.Var(update, "update", "what the guard writes into outdated pods while they run: never (nothing), rules (current rules), "+
		"or annotations (current rules, with edited exclusions and inclusions)")
}

func (o *options) guard(ctx context.Context, address string, settings guard.Settings) error {
	registry := guardRegistry()
	tasks, stuck := []task{o.untilMoved(o.guardMounts()...)}, func() error { return nil }
	if o.Entry.Asked == backend.Auto && o.Entry.Conf.Backend != config.NFTables {
		o.log.Info("no pod is examined: the backend of this node is not nftables", "backend", o.Entry.Conf.Backend)
	} else if backend := o.Entry.Conf.Backend; settings.Update != guard.UpdateNever && backend != config.NFTables {
		return fmt.Errorf("--update is %q: expected backend %q, netconf says %q: use never", settings.Update, config.NFTables, backend)
	} else {
		g, err := o.newGuard(settings, registry)
		if err != nil {
			return err
		}
		tasks, stuck = append(tasks, untilEnd(g.Run)), g.Stuck
	}
	server, err := httpServer(address, guardProbe(stuck, registry), o.log)
	if err != nil {
		return err
	}
	return runTogether(ctx, append(tasks, server)...)
}

// guardRegistry returns a registry with those metrics of the guard that do not depend on pods.
func guardRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	metrics.NewFactory(registry).GaugeVec("build_info", metrics.BuildInfo, "version").WithLabelValues(config.OwnVersion()).Set(1)
	return registry
}

// guardProbe returns the handler of the kubelet's probe and of the metrics. The probe fails if stuck
// returns an error.
func guardProbe(stuck func() error, registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if err := stuck(); err != nil {
			http.Error(w, "stuck: "+err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, "alive")
	})
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return mux
}

// newGuard returns a guard with the plugin's configuration, as the agent writes it into the entry. It
// returns an error if the configuration permits no guard.
func (o *options) newGuard(settings guard.Settings, registry prometheus.Registerer) (*guard.Guard, error) {
	if o.AgentSocket() == "" {
		return nil, errors.New("agentSocket is empty in netconf, and the guard asks the agent for pods: expected a path, or no guard")
	}
	settings.Conf, settings.Socket, settings.BaselineDir = o.Entry.Conf, o.GuardSocket(), o.GuardDirectory()
	settings.HistoryDir = telemetry.HistoryDirectory(o.AgentSocket())
	if settings.Policy == guard.InPlace && settings.Conf.Backend != config.NFTables {
		return nil, fmt.Errorf("--policy is %q: expected backend %q, netconf says %q: use report or evict, or no guard",
			settings.Policy, config.NFTables, settings.Conf.Backend)
	}
	if o.runtime == nil {
		return nil, errors.New("--cri-socket is none, and the guard lists pods through the runtime: " +
			"set --cri-socket (paths.criSocket), or use no guard")
	}
	return guard.New(settings, cri.NewLocator(o.runtime), lookup.Agent{Socket: o.PodsSocket()}, o.log, registry), nil
}
