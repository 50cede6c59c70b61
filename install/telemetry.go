// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/capture-cni/capture-cni/install/node"
	"github.com/capture-cni/capture-cni/install/telemetry"
)

// hearing is what becomes of the plugin's reports.
type hearing struct{ events bool }

func (h *hearing) declare(flags *pflag.FlagSet) {
	flags.BoolVar(&h.events, "events", true, "post Events on pods that fail or deserve a warning; needs the permission to create and patch them")
}

// start listens until ctx ends. Nothing else depends on it.
func (h hearing) start(ctx context.Context, o *options, s node.Settings, registry prometheus.Registerer, log *slog.Logger) {
	socket, err := s.AgentSocket()
	if err != nil || socket == "" {
		log.Info("nobody listens to the plugin", "error", err)
		return
	}
	var events *telemetry.Events
	if h.events {
		if events, err = o.events(ctx, log); err != nil {
			log.Warn("there will be no Events", "error", err)
		}
	}
	go telemetry.New(telemetry.Settings{Socket: socket, Plugin: s.Plugin(), NetConf: s.NetConf}, registry, events, log).Serve(ctx)
}

func (o *options) events(ctx context.Context, log *slog.Logger) (*telemetry.Events, error) {
	access, err := o.access()
	if err != nil {
		return nil, err
	}
	events, err := telemetry.NewEvents(access, o.nodeName, log)
	if err == nil {
		go events.Serve(ctx)
	}
	return events, err
}
