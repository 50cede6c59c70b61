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
	"github.com/capture-cni/capture-cni/plugin/record"
)

// receive returns all that was sent so far, without waiting.
func receive(t *testing.T, conn *net.UnixConn) (records []record.Record) {
	t.Helper()
	for _, document := range lab.Datagrams(t, conn) {
		r, err := record.Read(document)
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, r)
	}
	return records
}

// looked is a pod, and what a look at it gave.
func looked(name string, f Finding) *watched {
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
	n := outbox{socket: socket}
	n.send()
	for _, name := range []string{"a", "b", "c"} {
		n.add(looked(name, Finding{State: Uncaptured, Reason: "no rules"}))
		n.send()
	}
	if diff := cmp.Diff([]string{"a", "b", "c"}, names(n.waiting)); diff != "" {
		t.Fatalf("what waits: %s", diff)
	}
	conn := lab.AgentSocket(t, socket)
	n.send()
	n.send()
	if diff := cmp.Diff([]string{"a", "b", "c"}, names(receive(t, conn))); diff != "" || len(n.waiting) != 0 {
		t.Errorf("%d wait still\n%s", len(n.waiting), diff)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	n.add(looked("d", Finding{State: Drifted}))
	n.send()
	if diff := cmp.Diff([]string{"d"}, names(n.waiting)); diff != "" {
		t.Errorf("after the agent ended: %s", diff)
	}
}

// TestOutboxOfABusyAgent keeps what an agent that does not read could not take.
func TestOutboxOfABusyAgent(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	conn := lab.AgentSocket(t, socket)
	n := outbox{socket: socket}
	var want []string
	for i := range outboxSize {
		want = append(want, fmt.Sprint(i))
		n.add(looked(want[i], Finding{State: Uncaptured, Reason: strings.Repeat("x", 1<<10)}))
	}
	n.send()
	if len(n.waiting) == 0 || len(n.waiting) == outboxSize {
		t.Fatalf("%d of %d wait", len(n.waiting), outboxSize)
	}
	got := names(receive(t, conn))
	for len(n.waiting) > 0 && len(got) < outboxSize {
		n.send()
		got = append(got, names(receive(t, conn))...)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestOutboxIsBounded drops the oldest records where no agent listens.
func TestOutboxIsBounded(t *testing.T) {
	t.Parallel()
	n := outbox{socket: filepath.Join(t.TempDir(), "s")}
	const more = 10
	for i := range outboxSize + more {
		n.add(looked(fmt.Sprint(i), Finding{State: Uncaptured}))
	}
	if first, last := n.waiting[0].Pod.Name, n.waiting[len(n.waiting)-1].Pod.Name; len(n.waiting) != outboxSize || first != fmt.Sprint(more) || last != fmt.Sprint(outboxSize+more-1) {
		t.Errorf("%d wait, from %s to %s", len(n.waiting), first, last)
	}
}

// TestOutbox sends a record unless all is well, in a form that the agent reads.
func TestOutbox(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		finding Finding
		verdict record.Verdict
		reason  record.Reason
		says    string
	}{
		{Finding{State: Captured}, "", "", ""},
		{Finding{State: Exempt, Reason: "interception NONE"}, "", "", ""},
		{Finding{State: Unknown, Reason: "no API server"}, "", "", ""},
		{Finding{Captured, "no rules", Uncaptured}, record.Repaired, record.Uncaptured, "is captured now"},
		{Finding{Captured, "one rule more", Drifted}, record.Repaired, record.Drifted, "are as they were again"},
		{Finding{State: Uncaptured, Reason: "no rules"}, record.Found, record.Uncaptured, "not captured"},
		{Finding{State: Drifted, Reason: "one rule more"}, record.Found, record.Drifted, "not captured"},
		{Finding{State: Outdated, Reason: "of v0"}, record.Found, record.Outdated, "a restart"},
		{Finding{State: Changed, Reason: "edited"}, record.Found, record.Changed, "edited"},
		{Finding{State: Obstructed, Reason: "notrack in front"}, record.Found, record.Obstructed, "another table"},
		{Finding{State: Foreign, Reason: "of istio-cni"}, record.Found, record.Foreign, "not ours"},
	} {
		socket := filepath.Join(t.TempDir(), "s")
		conn := lab.AgentSocket(t, socket)
		n := outbox{socket: socket}
		n.add(looked("web", tt.finding))
		n.send()
		got := receive(t, conn)
		if tt.verdict == "" {
			if len(got) > 0 || len(n.waiting) > 0 {
				t.Errorf("%v: told %v", tt.finding, got)
			}
			continue
		}
		if len(got) != 1 {
			t.Errorf("%v: told %v", tt.finding, got)
			continue
		}
		r := got[0]
		if r.Verdict != tt.verdict || r.Reason != tt.reason || !strings.Contains(r.Message, tt.says) || !strings.Contains(r.Message, tt.finding.Reason) ||
			r.Pod != (record.PodRef{Namespace: "shop", Name: "web", UID: "uid-of-web"}) || r.Sandbox != "sandbox-of-web" || r.Time.IsZero() {
			t.Errorf("%v: told %+v", tt.finding, r)
		}
	}
}

// TestNoSocket keeps nothing where there is no agent at all.
func TestNoSocket(t *testing.T) {
	t.Parallel()
	var n outbox
	for _, state := range States() {
		n.add(looked("web", Finding{State: state}))
		n.requestEviction(looked("web", Finding{State: state}))
	}
	n.send()
	if len(n.waiting) > 0 {
		t.Errorf("waiting: %v", n.waiting)
	}
}

// TestRequestEviction asks an agent that listens, and keeps no request: a later
// examination repeats it.
func TestRequestEviction(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	n := outbox{socket: socket}
	n.requestEviction(looked("early", Finding{State: Uncaptured}))
	conn := lab.AgentSocket(t, socket)
	n.send()
	n.requestEviction(looked("web", Finding{State: Drifted, Reason: "one rule more"}))
	got := receive(t, conn)
	if len(got) != 1 || got[0].Verdict != record.EvictionRequested || got[0].Reason != record.Drifted || got[0].Pod.UID != "uid-of-web" {
		t.Errorf("told %+v", got)
	}
}
