// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/install/telemetry"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// receive returns all that was sent so far, without waiting.
func receive(t *testing.T, conn *net.UnixConn) (records []record.Record) {
	t.Helper()
	for _, document := range lab.Datagrams(t, conn) {
		r, err := telemetry.ParseRecord(document)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, r)
	}
	return records
}

// outboxTo returns an outbox that sends to a socket.
func outboxTo(socket string) outbox {
	return outbox{deliver: func(r record.Record) bool { return record.Send(socket, r) }}
}

// examined returns a pod with a finding.
func examined(name string, f report.Finding) *watched {
	return &watched{sandbox: cri.Sandbox{ID: "sandbox-of-" + name, Namespace: "shop", Name: name, UID: "uid-of-" + name}, finding: f}
}

func names(records []record.Record) (names []string) {
	for _, r := range records {
		names = append(names, r.Pod.Name)
	}
	return names
}

// TestOutboxWaits until an agent listens, and sends each record once, in order.
func TestOutboxWaits(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	o := outboxTo(socket)
	o.send()
	for _, name := range []string{"a", "b", "c"} {
		o.add(examined(name, finding(report.Uncaptured, "no rules")))
		o.send()
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, names(o.queue)); diff != "" {
		t.Fatalf("queued: %s", diff)
	}
	conn := lab.AgentSocket(t, socket)
	o.send()
	o.send()
	if diff := cmp.Diff([]string{"a", "b", "c"}, names(receive(t, conn))); diff != "" || len(o.queue) != 0 {
		t.Errorf("%d are still queued\n%s", len(o.queue), diff)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	o.add(examined("d", finding(report.Drifted, "")))
	o.send()
	if diff := cmp.Diff([]string{"d"}, names(o.queue)); diff != "" {
		t.Errorf("after the agent ended: %s", diff)
	}
}

// TestOutboxOfABusyAgent keeps the records that an agent that does not read could
// not take.
func TestOutboxOfABusyAgent(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	conn := lab.AgentSocket(t, socket)
	o := outboxTo(socket)
	var want []string
	for i := range outboxSize {
		want = append(want, fmt.Sprint(i))
		o.add(examined(want[i], finding(report.Uncaptured, strings.Repeat("x", 1<<10))))
	}
	o.send()
	if len(o.queue) == 0 || len(o.queue) == outboxSize {
		t.Fatalf("%d of %d are queued", len(o.queue), outboxSize)
	}
	got := names(receive(t, conn))
	for len(o.queue) > 0 && len(got) < outboxSize {
		o.send()
		got = append(got, names(receive(t, conn))...)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestOutboxIsBounded drops the oldest records where no agent listens.
func TestOutboxIsBounded(t *testing.T) {
	t.Parallel()
	o := outboxTo(filepath.Join(t.TempDir(), "s"))
	const more = 10
	for i := range outboxSize + more {
		o.add(examined(fmt.Sprint(i), finding(report.Uncaptured, "")))
	}
	if first, last := o.queue[0].Pod.Name, o.queue[len(o.queue)-1].Pod.Name; len(o.queue) != outboxSize || first != fmt.Sprint(more) || last != fmt.Sprint(outboxSize+more-1) {
		t.Errorf("%d are queued, from %s to %s", len(o.queue), first, last)
	}
}

// TestOutbox sends a record of each finding that needs an Event, in a form that
// the agent reads.
func TestOutbox(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		finding report.Finding
		verdict record.Verdict
		reason  capture.Reason
		says    string
	}{
		{finding(report.Captured, ""), "", "", ""},
		{finding(report.Exempt, "interception NONE"), "", "", ""},
		{finding(report.Unknown, "no API server"), "", "", ""},
		{finding(report.Captured, "no rules"), telemetry.Repaired, telemetry.Uncaptured, "is captured now"},
		{finding(report.Captured, "one rule more"), telemetry.Repaired, telemetry.Drifted, "are restored"},
		{finding(report.Captured, "rules of v4"), telemetry.Updated, telemetry.Outdated, "were updated"},
		{finding(report.Uncaptured, "no rules"), telemetry.Found, telemetry.Uncaptured, "not captured"},
		{finding(report.Drifted, "one rule more"), telemetry.Found, telemetry.Drifted, "not restored"},
		{finding(report.Outdated, "of v0"), telemetry.Found, telemetry.Outdated, "a restart"},
		{finding(report.Changed, "edited"), telemetry.Found, telemetry.Changed, "edited"},
		{finding(report.InjectedLater, "edited"), telemetry.Found, telemetry.InjectedLater, "not captured, though"},
		{finding(report.Obstructed, "notrack in front"), telemetry.Found, telemetry.Obstructed, "other rules"},
		{finding(report.Foreign, "of istio-cni"), telemetry.Found, telemetry.Foreign, "another plugin's"},
	} {
		socket := filepath.Join(t.TempDir(), "s")
		conn := lab.AgentSocket(t, socket)
		o := outboxTo(socket)
		w := examined("web", tt.finding)
		if tt.verdict == telemetry.Repaired || tt.verdict == telemetry.Updated {
			w.repaired = report.Code(tt.reason)
		}
		o.add(w)
		o.send()
		got := receive(t, conn)
		if tt.verdict == "" {
			if len(got) > 0 || len(o.queue) > 0 {
				t.Errorf("%v: sent %v", tt.finding, got)
			}
			continue
		}
		if len(got) != 1 {
			t.Errorf("%v: sent %v", tt.finding, got)
			continue
		}
		r := got[0]
		if r.Verdict != tt.verdict || r.Reason != tt.reason || !strings.Contains(r.Message, tt.says) || !strings.Contains(r.Message, tt.finding.Reason) ||
			r.Pod != (capture.PodRef{Namespace: "shop", Name: "web", UID: "uid-of-web"}) || r.Sandbox != "sandbox-of-web" || r.Time.IsZero() {
			t.Errorf("%v: sent %+v", tt.finding, r)
		}
	}
}

// TestRequestEviction sends the request at once or not at all: a later examination
// repeats it.
func TestRequestEviction(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	o := outboxTo(socket)
	o.requestEviction(examined("early", finding(report.Uncaptured, "")))
	conn := lab.AgentSocket(t, socket)
	o.send()
	o.requestEviction(examined("web", finding(report.Drifted, "one rule more")))
	got := receive(t, conn)
	if len(got) != 1 || got[0].Verdict != telemetry.EvictionRequested || got[0].Reason != telemetry.Drifted || got[0].Pod.UID != "uid-of-web" {
		t.Errorf("sent %+v", got)
	}
}
