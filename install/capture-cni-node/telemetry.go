// SPDX-License-Identifier: Apache-2.0

package main

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/capture-cni/capture-cni/install/evict"
	"github.com/capture-cni/capture-cni/install/keeper"
	"github.com/capture-cni/capture-cni/install/settings"
	"github.com/capture-cni/capture-cni/install/telemetry"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// telemetryFlags are the flags of what the agent does with records.
type telemetryFlags struct{ events, evict bool }

func (t *telemetryFlags) declare(flags *pflag.FlagSet) {
	flags.BoolVar(&t.events, "events", true, "post Events on pods with errors or warnings; needs the permission to create and patch Events")
	flags.BoolVar(&t.evict, "evict", false, "evict pods on request of a guard with --policy evict; needs --node-name and the permission to get pods and create evictions")
}

// tasks returns the tasks that receive the plugin's records and act on them.
func (t telemetryFlags) tasks(o *options, keeper *keeper.Keeper, s settings.Node, isWatched func(record.PodRef) bool, registry prometheus.Registerer, log *slog.Logger) ([]task, error) {
	settings := telemetry.Settings{Socket: s.AgentSocket(), Plugin: s.Plugin(), NetConf: s.Entry.Keys}
	if settings.Socket == "" {
		log.Info("agentSocket is empty: no Events and no ADD metrics")
		return nil, nil
	}
	api, _, err := o.api()
	var tasks []task
	var events *telemetry.Events
	switch {
	case t.events && err != nil:
		log.Warn("Events are disabled", "error", err)
	case t.events:
		events = telemetry.NewEvents(api, o.nodeName, isWatched, registry, log)
		tasks = append(tasks, untilEnd(events.Serve))
	}
	if t.evict {
		if err != nil {
			return nil, err
		}
		evictor, err := evict.New(api, o.nodeName, keeper.Ready, registry, log)
		if err != nil {
			return nil, err
		}
		settings.Evict = evictor.Request
		tasks = append(tasks, untilEnd(evictor.Serve))
	}
	return append(tasks, untilEnd(telemetry.New(settings, registry, events, log).Serve)), nil
}
