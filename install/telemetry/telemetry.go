// SPDX-License-Identifier: Apache-2.0

// Package telemetry receives the records of plugin and guard, and makes metrics,
// log lines and Events of them. Neither of the two waits for it.
package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/history"
	"github.com/capture-cni/capture-cni/install/metrics"
	"github.com/capture-cni/capture-cni/install/received"
	"github.com/capture-cni/capture-cni/install/socket"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// Settings are those of a Listener.
type Settings struct {
	Socket  string // in the agent's own file system
	Plugin  string // the installed binary
	NetConf []byte // the operator's keys of the entry

	Evict func(record.PodRef) // requests an eviction, never blocks; nil to evict none
}

// Listener receives records at a socket.
type Listener struct {
	settings Settings
	metrics  *addMetrics
	events   *Events // nil for none
	log      *slog.Logger
	records  *slog.Logger     // paced, for lines about records
	history  *history.History // nil where its directory can't be used
}

// New returns a Listener that registers its metrics with a registry.
func New(settings Settings, registry prometheus.Registerer, events *Events, log *slog.Logger) *Listener {
	l := &Listener{settings: settings, metrics: newAddMetrics(metrics.NewFactory(registry)), events: events, log: log}
	l.records = paced(log, l.metrics.dropped)
	l.metrics.netConf.WithLabelValues(hash(settings.NetConf)).Set(1)
	return l
}

const (
	checkInterval  = time.Second     // between checks of the socket's path
	replayInterval = time.Minute     // between checks of the spool and of the installed plugin
	relistenPause  = 5 * time.Second // after an attempt to listen failed, or another file took the socket's place
)

// Serve listens until ctx ends, and again whenever the socket was lost.
func (l *Listener) Serve(ctx context.Context) {
	for ctx.Err() == nil {
		err := l.listen(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, socket.ErrRemoved) {
			l.log.Warn("the socket for records was removed; listening again", "socket", l.settings.Socket)
			continue
		}
		l.log.Warn("receiving records failed; retrying", "socket", l.settings.Socket, "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(relistenPause):
		}
	}
}

// listen serves one socket, until it is lost. The file stays when the agent ends:
// until the next agent listens, the plugin's records are refused and spooled.
func (l *Listener) listen(ctx context.Context) (err error) {
	conn, err := listen(ctx, l.settings.Socket)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	made, err := os.Lstat(l.settings.Socket)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })()
	var replayed time.Time
	for ctx.Err() == nil {
		for _, path := range []string{l.settings.Socket, config.GuardSocket(l.settings.Socket)} {
			if err := socket.CheckPath(path, made); err != nil {
				return err
			}
		}
		if time.Since(replayed) >= replayInterval {
			replayed = time.Now()
			l.replay()
		}
		if err := l.read(ctx, conn, time.Now().Add(checkInterval)); err != nil {
			return err
		}
	}
	return nil
}

// replay reads what was spooled, and looks at what another agent or an upgrade may have
// replaced.
func (l *Listener) replay() {
	l.metrics.showBuild(l.settings.Plugin)
	l.openHistory()
	if err := received.Replay(record.Spool(l.settings.Socket), func(document []byte) { l.receive(document, true) }); err != nil {
		l.log.Warn("reading the spooled records failed", "error", err)
	}
}

// read receives records until a time.
func (l *Listener) read(ctx context.Context, conn *net.UnixConn, until time.Time) error {
	if err := conn.SetReadDeadline(until); err != nil {
		return err
	}
	buffer, control := make([]byte, record.MaxSize+1), make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	for ctx.Err() == nil && time.Now().Before(until) {
		n, controlled, _, _, err := conn.ReadMsgUnix(buffer, control)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return err
		}
		if !isOurs(control[:controlled]) {
			l.metrics.lost.WithLabelValues(causeSender).Inc()
			continue
		}
		l.receive(buffer[:n], false)
	}
	return nil
}

// receive processes one record, which may have waited in the spool.
func (l *Listener) receive(document []byte, spooled bool) {
	r, err := received.Read(document)
	switch {
	case errors.Is(err, received.ErrVersion):
		l.metrics.lost.WithLabelValues(causeVersion).Inc()
		return
	case err != nil:
		l.metrics.lost.WithLabelValues(causeForm).Inc()
		l.records.Warn("discarding a malformed record", "error", err)
		return
	}
	if slices.Contains(received.OfAdds(), r.Verdict) {
		l.metrics.observe(r)
		l.record(r, spooled)
	}
	if r.Verdict == received.EvictionRequested && l.settings.Evict != nil {
		l.settings.Evict(r.Pod)
	}
	l.write(r)
	if l.events != nil {
		l.events.Post(r)
	}
}

// openHistory rebuilds the index: another agent may have written to the history.
func (l *Listener) openHistory() {
	err := makeDirectories(l.settings.Socket)
	if err == nil {
		l.history, err = history.Open(history.Directory(l.settings.Socket))
	}
	if err != nil {
		l.log.Warn("opening the history of ADDs failed; keeping none", "error", err)
	}
}

// record writes an ADD to the history, unless the pod is not in the mesh and there
// are no warnings.
func (l *Listener) record(r record.Record, spooled bool) {
	if r.Verdict == record.Passed && !received.IsExempt(r.Reason) && len(r.Warnings) == 0 {
		return
	}
	err := recordIn(l.history, r, spooled)
	if err != nil { // the directory may have been deleted or replaced
		l.openHistory()
		err = recordIn(l.history, r, spooled)
	}
	if err != nil {
		l.records.Warn("writing to the history of ADDs failed", "error", err)
	}
}

func recordIn(h *history.History, r record.Record, spooled bool) error {
	switch {
	case h == nil:
		return nil
	case spooled:
		return h.RecordSpooled(r)
	}
	return h.Record(r)
}

// write logs one line for a pod of the mesh.
func (l *Listener) write(r record.Record) {
	log := l.records.With("pod", r.Pod.String(), "uid", r.Pod.UID, "sandbox", r.Sandbox)
	if len(r.Warnings) > 0 {
		log = log.With("warnings", r.Warnings)
	}
	switch r.Verdict {
	case record.Captured:
		log.Info("captured", "backend", r.Backend, "seconds", r.Stages)
	case record.Failed:
		log.Warn("not captured, and not started", "reason", r.Reason, "code", r.Code, "message", r.Message, "seconds", r.Stages)
	case record.Passed:
		switch {
		case len(r.Warnings) > 0:
			log.Warn("not captured", "reason", r.Reason)
		case received.IsExempt(r.Reason):
			log.Info("in the mesh, and exempt from capture", "reason", r.Reason, "message", r.Message)
		}
	case received.Repaired:
		log.Info("captured by the guard", "found", r.Reason, "message", r.Message)
	case received.Found, received.EvictionRequested: // the guard logs them
	}
}
