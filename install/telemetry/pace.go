// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
)

// Pace of the lines about records: all pods of a node may start at once, and one
// that fails in a loop must not fill the node's log.
const (
	logPerSecond = 10
	logBurst     = 256
)

// pace is a log's handler that drops lines beyond a rate, and counts them.
type pace struct {
	slog.Handler
	*paceState
}

type paceState struct {
	limit   *rate.Limiter
	dropped prometheus.Counter
	since   atomic.Int64 // dropped since the last line
}

func paced(log *slog.Logger, dropped prometheus.Counter) *slog.Logger {
	return slog.New(pace{log.Handler(), &paceState{limit: rate.NewLimiter(logPerSecond, logBurst), dropped: dropped}})
}

// Handle implements slog.Handler.
func (p pace) Handle(ctx context.Context, r slog.Record) error {
	if !p.limit.Allow() {
		p.since.Add(1)
		p.dropped.Inc()
		return nil
	}
	if n := p.since.Swap(0); n > 0 {
		r.AddAttrs(slog.String("dropped", fmt.Sprintf("%d lines were dropped before this one: more than %d a second", n, logPerSecond)))
	}
	return p.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (p pace) WithAttrs(attrs []slog.Attr) slog.Handler {
	return pace{p.Handler.WithAttrs(attrs), p.paceState}
}

// WithGroup implements slog.Handler.
func (p pace) WithGroup(name string) slog.Handler {
	return pace{p.Handler.WithGroup(name), p.paceState}
}
