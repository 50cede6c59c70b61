// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/capture-cni/capture-cni/install/evict"
	"github.com/capture-cni/capture-cni/install/node"
	"github.com/capture-cni/capture-cni/install/telemetry"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// hearing is what becomes of the plugin's reports.
type hearing struct{ events, evict bool }

func (h *hearing) declare(flags *pflag.FlagSet) {
	flags.BoolVar(&h.events, "events", true, "post Events on pods that fail or deserve a warning; needs the permission to create and patch them")
	flags.BoolVar(&h.evict, "evict", false, "evict pods of this node for which a guard with --policy evict asks; needs --node-name and the permission to get pods and create evictions")
}

// start listens until ctx ends. Nothing else depends on it.
func (h hearing) start(ctx context.Context, o *options, keeper *node.Keeper, s node.Settings, registry prometheus.Registerer, log *slog.Logger) error {
	settings := telemetry.Settings{Socket: s.AgentSocket(), Plugin: s.Plugin(), NetConf: s.Entry.Keys}
	if settings.Socket == "" {
		log.Info("agentSocket is empty: no Events and no ADD metrics")
		return nil
	}
	var err error
	var events *telemetry.Events
	if h.events {
		if events, err = o.events(ctx, log); err != nil {
			log.Warn("there will be no Events", "error", err)
		}
	}
	if h.evict {
		if settings.Evict, err = o.evict(ctx, keeper, registry, log); err != nil {
			return err
		}
	}
	go telemetry.New(settings, registry, events, log).Serve(ctx)
	return nil
}

// evict gives the way to ask for an eviction.
func (o *options) evict(ctx context.Context, keeper *node.Keeper, registry prometheus.Registerer, log *slog.Logger) (func(record.PodRef), error) {
	api, err := o.api()
	if err != nil {
		return nil, err
	}
	ready := func(ctx context.Context) error {
		if found := keeper.Look(ctx); !found.Good() {
			return errors.New(found.String())
		}
		return nil
	}
	evictor, err := evict.New(api, o.nodeName, ready, registry, log)
	if err != nil {
		return nil, err
	}
	go evictor.Serve(ctx)
	return evictor.Request, nil
}

func (o *options) events(ctx context.Context, log *slog.Logger) (*telemetry.Events, error) {
	api, err := o.api()
	if err != nil {
		return nil, err
	}
	events := telemetry.NewEvents(api, o.nodeName, log)
	go events.Serve(ctx)
	return events, nil
}
