// SPDX-License-Identifier: Apache-2.0

// Package telemetry receives records from the plugin and the guard, which never wait for it. It
// converts the records to metrics, log lines and Events, and keeps the history, which contains the record
// of the last ADD of each pod of the mesh. It checks each field of a record, because any process of root
// can send one.
package telemetry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/metrics"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// Settings contains the settings of a Listener.
type Settings struct {
	Socket  string // path in the agent's file system
	Plugin  string // path of the installed plugin
	NetConf []byte // the operator's keys in the plugin's entry, and those that the agent adds to them

	Evict func(capture.PodRef) // requests an eviction without blocking; nil if pods must not be evicted
}

// Listener receives records at a socket.
type Listener struct {
	settings Settings
	metrics  *addMetrics
	events   *Events // nil if no Events should be posted
	log      *slog.Logger
	replayed time.Time // time when the spool was last read
	pace     *rate.Limiter
	skipped  int // number of log lines that were dropped since the last written one
}

// New returns a Listener, and registers its metrics.
func New(settings Settings, registry prometheus.Registerer, events *Events, log *slog.Logger) *Listener {
	l := &Listener{
		settings: settings,
		metrics:  newAddMetrics(metrics.NewFactory(registry)),
		events:   events,
		log:      log,
		pace:     rate.NewLimiter(logPerSecond, logBurst),
	}
	sum := sha256.Sum256(settings.NetConf)
	l.metrics.netConf.WithLabelValues(hex.EncodeToString(sum[:6])).Set(1)
	return l
}

// Pace of the log lines about records. All pods of a node may start at once, and a pod that fails
// repeatedly must not fill the node's log.
const (
	logPerSecond = 10
	logBurst     = 256
)

// replayInterval is the time between checks of the spool and of the installed plugin.
const replayInterval = time.Minute

// Serve listens until ctx ends, and again after each loss of the socket. Once Serve has ended, the
// plugin can't send its records, and spools its failures until the next agent listens.
func (l *Listener) Serve(ctx context.Context) {
	path := l.settings.Socket
	listen := func(ctx context.Context) (*net.UnixConn, error) {
		l.replayed = time.Time{}
		return listen(ctx, path)
	}
	buffer, control := make([]byte, record.MaxSize+1), make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	read := func(conn *net.UnixConn) error { return l.read(conn, buffer, control) }
	host.Serve(ctx, []string{path, config.GuardSocket(path)}, listen, read, func(err error) {
		l.log.Warn("receiving records failed; retrying", "socket", path, "error", err)
	}, l.log)
}

// replay reads the spool. Before that, it makes the directories of records again, and shows the version
// of the installed plugin in a metric, because an upgrade may have replaced the plugin.
func (l *Listener) replay() {
	l.metrics.showBuild(l.settings.Plugin)
	if err := makeDirectories(l.settings.Socket); err != nil { // another program may have deleted the directories
		l.log.Warn("making the directories of records failed", "error", err)
	}
	if err := ReplaySpool(record.Spool(l.settings.Socket), func(document []byte) { l.receive(document, true) }); err != nil {
		l.log.Warn("reading the spooled records failed", "error", err)
	}
}

// read receives one record and, once a minute, first reads the spool. It counts and discards a record
// whose sender is another user.
func (l *Listener) read(conn *net.UnixConn, buffer, control []byte) error {
	if time.Since(l.replayed) >= replayInterval {
		l.replayed = time.Now()
		l.replay()
	}
	n, controlled, _, _, err := conn.ReadMsgUnix(buffer, control)
	if err != nil {
		return err
	}
	if !isOurs(control[:controlled]) {
		l.metrics.lost.WithLabelValues(causeSender).Inc()
		return nil
	}
	l.receive(buffer[:n], false)
	return nil
}

// receive processes one record. spooled says that the record comes from the spool.
func (l *Listener) receive(document []byte, spooled bool) {
	r, err := ParseRecord(document)
	switch {
	case errors.Is(err, errVersion):
		l.metrics.lost.WithLabelValues(causeVersion).Inc()
		return
	case err != nil:
		l.metrics.lost.WithLabelValues(causeForm).Inc()
		l.paced(slog.LevelWarn).Warn("discarding a malformed record", "error", err)
		return
	}
	if slices.Contains(ofAdds(), r.Verdict) {
		l.metrics.observe(r)
		l.countFailed(r)
		l.record(r, spooled)
	}
	if r.Verdict == EvictionRequested && l.settings.Evict != nil {
		l.settings.Evict(r.Pod)
	}
	l.write(r)
	if l.events != nil {
		l.events.Post(r)
	}
}

// countFailed counts a pod whose ADD failed, unless the pod's previous ADD failed, too, or the record
// has no UID.
func (l *Listener) countFailed(r record.Record) {
	if r.Verdict != record.Failed || r.Pod.UID == "" {
		return
	}
	last, err := LastRecord(HistoryDirectory(l.settings.Socket), r.Pod.UID)
	if err != nil || last.Verdict != record.Failed {
		l.metrics.failedPods.Inc()
	}
}

// record writes the record of an ADD to the history, unless the pod is outside the mesh and the record
// has neither warnings nor notes.
func (l *Listener) record(r record.Record, spooled bool) {
	if r.Verdict == record.Passed && !isExempt(r.Reason) && len(r.Warnings)+len(r.Notes) == 0 {
		return
	}
	err := KeepRecord(HistoryDirectory(l.settings.Socket), r, spooled)
	if err != nil { // the directory may have been deleted or replaced
		if err = makeDirectories(l.settings.Socket); err == nil {
			err = KeepRecord(HistoryDirectory(l.settings.Socket), r, spooled)
		}
	}
	if err != nil {
		l.paced(slog.LevelWarn).Warn("writing to the history of ADDs failed", "error", err)
	}
}

// paced returns the log for one line about a record. Beyond the pace, it returns a log that discards
// the line, and the next written line contains the number of discarded ones. Lines below the log's
// level do not count.
func (l *Listener) paced(level slog.Level) *slog.Logger {
	if !l.log.Enabled(context.Background(), level) {
		return l.log
	}
	if !l.pace.Allow() {
		l.skipped++
		l.metrics.dropped.Inc()
		return slog.New(slog.DiscardHandler)
	}
	log := l.log
	if l.skipped > 0 {
		log = log.With("dropped", fmt.Sprintf("%d lines were dropped before this one: more than %d a second", l.skipped, logPerSecond))
		l.skipped = 0
	}
	return log
}

func (l *Listener) line(r record.Record, level slog.Level, message string, args ...any) {
	log := l.paced(level).With("pod", r.Pod.String(), "uid", r.Pod.UID, "sandbox", r.Sandbox)
	if r.Trace != "" {
		log = log.With("trace", r.Trace)
	}
	if len(r.Warnings) > 0 {
		log = log.With("warnings", r.Warnings)
	}
	if len(r.Notes) > 0 {
		log = log.With("notes", r.Notes)
	}
	log.Log(context.Background(), level, message, args...)
}

func seconds(stages map[record.Stage]float64) slog.Attr {
	var attrs []any
	for _, stage := range report.Stages() {
		if took, known := stages[stage]; known {
			attrs = append(attrs, slog.Float64(string(stage), took))
		}
	}
	return slog.Group("seconds", attrs...)
}

// write logs a line about the ADD of a pod of the mesh, a failed ADD, an ADD with warnings, a repair, and
// an update. It logs no findings of the guard, because the guard's own log contains them.
func (l *Listener) write(r record.Record) {
	switch {
	case r.Verdict == record.Captured:
		l.line(r, slog.LevelInfo, "captured", "backend", r.Backend, seconds(r.Stages))
	case r.Verdict == record.Failed:
		l.line(r, slog.LevelWarn, "not captured, and not started", "reason", r.Reason, "code", r.Code, "message", r.Message, seconds(r.Stages))
	case r.Verdict == record.Passed && len(r.Warnings) > 0:
		l.line(r, slog.LevelWarn, "not captured", "reason", r.Reason)
	case r.Verdict == record.Passed && isExempt(r.Reason):
		l.line(r, slog.LevelInfo, "in the mesh, and exempt from capture", "reason", r.Reason, "message", r.Message)
	case r.Verdict == Repaired:
		l.line(r, slog.LevelInfo, "captured by the guard", "found", r.Reason, "message", r.Message)
	case r.Verdict == Updated:
		l.line(r, slog.LevelInfo, "updated by the guard", "message", r.Message)
	}
}
