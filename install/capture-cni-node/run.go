// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/install/kube"
	"github.com/capture-cni/capture-cni/install/metrics"
	"github.com/capture-cni/capture-cni/install/node"
	"github.com/capture-cni/capture-cni/install/pods"
	"github.com/capture-cni/capture-cni/install/telemetry"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

func runCommand(o *options) *cobra.Command {
	a := &agent{options: o}
	command := &cobra.Command{
		Use:   "run",
		Short: "Bring the node into the desired state and keep it there",
		Long: `Bring the node into the desired state and keep it there.

With --state present, the agent keeps the plugin, its entry and, unless
--token-on-node is false, its credentials installed. With --state absent, it cleans
the node once no meshed pod runs there, is ready from then on, and keeps running.
An agent that ends removes nothing.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if a.state != "present" && a.state != "absent" {
				return fmt.Errorf("--state is %q: expected present or absent", a.state)
			}
			return a.run(command.Context())
		},
	}
	flags := command.Flags()
	flags.StringVar(&a.state, "state", "present", "desired state of the node: present or absent")
	flags.StringVar(&a.address, "listen", "127.0.0.1:15015", "address of /healthz, /readyz and /metrics")
	flags.BoolVar(&a.force, "force", false, "with --state absent: remove the entry also while meshed pods run on the node")
	flags.StringVar(&a.untaint, "untaint", "",
		"key of the taint to remove once the node captures pods; "+
			"needs --node-name, POD_NAMESPACE, POD_NAME, and the permission to get and patch Nodes; empty: none")
	flags.BoolVar(&a.condition, "condition", false,
		"write the condition CaptureReady of the Node; "+
			"needs --node-name, POD_NAMESPACE, POD_NAME, and the permission to patch the status of Nodes")
	flags.BoolVar(&a.postsEvents, "events", true,
		"post Events about pods; needs the permission to get pods, and to create and patch Events")
	flags.BoolVar(&a.evicts, "evict", false,
		"evict pods on request of a guard with --policy evict; needs --node-name and the permission to get pods and create evictions")
	flags.BoolVar(&a.publishes, "lease", true,
		"publish the node's state in a Lease of the agent's namespace (POD_NAMESPACE); "+
			"needs --node-name and the permission to get, create and update Leases there")
	return command
}

// agent contains the state that the tasks of run share.
type agent struct {
	*options
	address, state, untaint        string // flags of run
	force, condition               bool
	publishes, postsEvents, evicts bool

	registry *prometheus.Registry
	keeper   *node.Keeper
	fault    string // the last logged fault of the guard's summary; "" after a success
}

func (a *agent) run(ctx context.Context) error {
	absent := a.state == "absent"
	a.registry = prometheus.NewRegistry()
	a.refusals = kube.NewRefusals(metrics.NewFactory(a.registry))
	api, access, err := a.api()
	if err != nil && !absent { // a removal needs no API server
		return err
	}
	if err == nil {
		a.Credentials.Server = cmp.Or(a.Credentials.Server, access.Host)
	}
	a.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	var answerer *pods.Server // nil if no task answers requests for pods
	if api != nil && a.PodsSocket() != "" {
		if own := a.Credentials.Pod; !absent && !a.Credentials.OnNode && (own.Name == "" || own.Namespace == "" || own.UID == "") {
			return errors.New("--token-on-node=false needs the agent's own pod in POD_NAMESPACE, POD_NAME and POD_UID")
		}
		answerer = pods.New(pods.Settings{
			Socket: a.PodsSocket(),
			Node:   a.Credentials.Node,
			Meshes: a.Entry.Conf.Capture.Meshes,
		}, api, a.registry, a.log)
	}
	ready := func() error { return cmp.Or(a.refusals.Fault(), answerer.Ready()) }
	a.keeper = node.NewKeeper(node.New(a.Settings, api, a.runtime, a.log), ready, a.registry, a.log)
	server, err := httpServer(a.address, probes(a.keeper, a.registry), a.log)
	if err != nil {
		return err
	}
	conditions, err := a.writeCondition(absent)
	if err != nil {
		return err
	}
	tasks := slices.Concat(a.publish(), []task{server}, after(a.keeper.Claimed(), conditions))
	if absent {
		serving, stop := context.WithCancel(ctx)
		defer stop()
		ended := make(chan struct{})
		answer := func(context.Context) error {
			defer close(ended)
			return runTogether(serving, after(a.keeper.Claimed(), []task{answerer.Serve})...)
		}
		remove := func(ctx context.Context) { a.keeper.Absent(ctx, a.force, func() { stop(); <-ended }) }
		return runTogether(ctx, append(tasks, answer, untilEnd(remove))...)
	}
	receivers, err := a.receive(answerer.Watches)
	if err != nil {
		return err
	}
	untaint, err := a.removeTaint()
	if err != nil {
		return err
	}
	mounts := a.agentMounts()
	tasks = append(tasks, untilEnd(a.keeper.Present), untilEnd(a.keeper.Preflight), a.untilMoved(mounts...))
	listeners := after(a.keeper.Claimed(), append(receivers, answerer.Serve))
	return runTogether(ctx, slices.Concat(tasks, listeners, untaint)...)
}

// receive returns the tasks that receive and process records of the plugin and the guard. If
// agentSocket is empty, it returns none.
func (a *agent) receive(isWatched func(capture.PodRef) bool) (tasks []task, err error) {
	settings := telemetry.Settings{Socket: a.AgentSocket(), Plugin: a.Plugin(), NetConf: a.Entry.Keys}
	if settings.Socket == "" {
		a.log.Info("agentSocket is empty: no Events, no evictions and no metrics of ADDs")
		return nil, nil
	}
	api, _, err := a.api()
	if err != nil {
		return nil, err
	}
	var events *telemetry.Events
	if a.postsEvents {
		events = telemetry.NewEvents(api, a.Credentials.Node, isWatched, a.registry, a.log)
		tasks = append(tasks, untilEnd(events.Serve))
	}
	if a.evicts {
		evictor, err := kube.NewEvictor(api, a.Credentials.Node, a.Entry.Conf.Capture.Meshes, a.keeper.Ready, a.registry, a.log)
		if err != nil {
			return nil, err
		}
		settings.Evict = evictor.Request
		tasks = append(tasks, untilEnd(evictor.Serve))
	}
	return append(tasks, untilEnd(telemetry.New(settings, a.registry, events, a.log).Serve)), nil
}

// removeTaint returns the task that removes the startup taint once the node captures pods, or none
// without --untaint. Before the removal, the task calls the plugin for the agent's own pod, which is
// outside the mesh.
func (a *agent) removeTaint() ([]task, error) {
	if a.untaint == "" {
		return nil, nil
	}
	api, err := a.nodeAPI("--untaint")
	if err != nil {
		return nil, err
	}
	return []task{untilEnd(kube.NewTaintRemover(api, a.Credentials.Node, a.untaint, a.accepts, a.keeper.SetTainted, a.log).Run)}, nil
}

// accepts returns nil if meshed pods may start on the node, and otherwise the reason against it.
func (a *agent) accepts(ctx context.Context) error { return a.keeper.Accepts(ctx, a.Credentials.Pod) }

// nodeAPI returns the client for a flag that needs the agent's own Node and pod.
func (a *agent) nodeAPI(flag string) (*kube.Client, error) {
	pod := a.Credentials.Pod
	if a.Credentials.Node == "" || pod.Namespace == "" || pod.Name == "" {
		return nil, fmt.Errorf("%s needs --node-name, and the agent's own pod in POD_NAMESPACE and POD_NAME", flag)
	}
	api, _, err := a.api()
	return api, err
}

// writeCondition returns the task that writes the Node's condition CaptureReady, or none if that is
// disabled. With absent, the condition is false.
func (a *agent) writeCondition(absent bool) ([]task, error) {
	if !a.condition {
		return nil, nil
	}
	api, err := a.nodeAPI("--condition")
	if err != nil {
		return nil, err
	}
	begins, holds := a.accepts, a.keeper.Ready
	if absent {
		begins = func(context.Context) error {
			return errors.New("with --state=absent, the agent removes the plugin's entry")
		}
		holds = begins
	}
	return []task{untilEnd(kube.NewConditionWriter(api, a.Credentials.Node, begins, holds, a.log).Run)}, nil
}

// probes returns the handler of the kubelet's probes and of the metrics.
func probes(keeper *node.Keeper, registry *prometheus.Registry) http.Handler {
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
