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
	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/node"
	"github.com/capture-cni/capture-cni/plugin/podlookup"
	"github.com/capture-cni/capture-cni/plugin/record"
)

func guardCommand(o *options) *cobra.Command {
	var policy, address string
	var round, refresh time.Duration
	command := &cobra.Command{
		Use:   "guard",
		Short: "Look after the pods of the mesh that run on the node",
		Long: `Look after the pods of the mesh that run on the node.

Finds out, through the runtime, whether each of them is captured as it was to be
when it was made, and with --policy inPlace puts right those that are not:
connections that began before live on where the kernel allows it. What ADD or a
repair left in each pod is kept in --run-dir, so that later changes are told from
it after a restart. With --policy evict it asks the agent, in --run-dir, to evict
them. Needs --cri-socket, the pods' network namespaces where the runtime has them,
and the capabilities SYS_ADMIN and NET_ADMIN; it reads pods by the plugin's own
kubeconfig.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if !slices.Contains(guard.Policies(), guard.Policy(policy)) {
				return fmt.Errorf("--policy is %q: expected inPlace, report or evict", policy)
			}
			if err := listenAddress("listen", address); err != nil {
				return err
			}
			return o.guard(command.Context(), address, guard.Settings{Policy: guard.Policy(policy), Round: round, Refresh: refresh})
		},
	}
	command.Flags().StringVar(&policy, "policy", string(guard.InPlace), "what becomes of a pod that is not captured as it should be: inPlace, report or evict")
	command.Flags().StringVar(&address, "listen", "127.0.0.1:15016", "where /healthz and /metrics are served")
	command.Flags().DurationVar(&round, "round", 30*time.Second, "how often each pod is looked at")
	command.Flags().DurationVar(&refresh, "refresh", 5*time.Minute, "how often each pod is read again, to notice edited annotations")
	return command
}

func (o *options) guard(ctx context.Context, address string, settings guard.Settings) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	g, err := o.newGuard(settings, registry)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "alive") })
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server, err := httpServer(ctx, address, mux)
	if err != nil {
		return err
	}
	return runTogether(ctx, server, untilEnd(g.Run))
}

// newGuard makes a guard that knows the plugin's configuration as the agent
// places it.
func (o *options) newGuard(settings guard.Settings, registry prometheus.Registerer) (*guard.Guard, error) {
	nodeSettings, err := o.settings()
	if err != nil {
		return nil, err
	}
	settings.Conf, settings.Socket, settings.BaselineDir = nodeSettings.Entry.Conf, nodeSettings.AgentSocket(), nodeSettings.GuardDirectory()
	if settings.Policy == guard.InPlace && settings.Conf.Backend != config.NFTables {
		return nil, fmt.Errorf("--policy is %q, which takes backend %q, and netconf says %q: use report or evict, or no guard", settings.Policy, config.NFTables, settings.Conf.Backend)
	}
	if o.criSocket == "" {
		return nil, errors.New("the guard asks the runtime which pods run: set --cri-socket (paths.criSocket)")
	}
	runtime, err := cri.New(o.criSocket)
	if err != nil {
		return nil, err
	}
	return guard.New(settings, cri.NewLocator(runtime), podReader{nodeSettings}, newLog(), registry), nil
}

// podReader reads pods by the plugin's credentials, wherever on the node the agent
// has put them: the disk of the state directory may be full.
type podReader struct{ settings node.Settings }

// Pod implements guard.Pods.
func (r podReader) Pod(ctx context.Context, ref record.PodRef) (*corev1.Pod, error) {
	lookup := podlookup.Lookup{Directory: r.settings.CredentialsDir(), Timeout: 5 * time.Second, SingleAttempt: true, Log: newLog()}
	return lookup.Pod(ctx, ref)
}
