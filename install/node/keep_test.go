// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/credentials"
	"github.com/capture-cni/capture-cni/install/kube"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

const ptpPath = "/etc/cni/net.d/10-ptp.conflist"

// kept is a keeper of a node that consists of the runtime's directory.
type kept struct {
	*Keeper
	t        *testing.T
	registry *prometheus.Registry
	log      *lab.Log
	podsErr  error // of requests of pods
}

func keep(t *testing.T, api *kube.Client, change func(*Settings)) *kept {
	t.Helper()
	wanted := DefaultSettings(machine.New(t, map[string]string{list: machine.PtpList, "/var/lib/capture-cni/other": ""}))
	wanted.Mode, wanted.BinDirs, wanted.Credentials.CAFile = report.Insert, nil, wanted.At("/ca/ca.crt")
	var err error
	wanted.Entry, err = conflist.ParseEntry(nil, wanted.Mode, wanted.StateDir, wanted.RunDir)
	lab.Check(t, err)
	if change != nil {
		change(&wanted)
	}
	k := &kept{t: t, registry: prometheus.NewRegistry(), log: &lab.Log{}}
	logger := slog.New(slog.NewTextHandler(k.log, nil))
	k.Keeper = NewKeeper(New(wanted, api, nil, logger), func() error { return k.podsErr }, k.registry, logger)
	return k
}

// rewrite is what another program does: it writes the list without the entry.
func (k *kept) rewrite() {
	lab.Check(k.t, os.WriteFile(k.node.Settings.At(ptpPath), []byte(machine.PtpList), 0o644))
}

func (k *kept) hasEntry() bool {
	text, err := os.ReadFile(k.node.Settings.At(ptpPath))
	lab.Check(k.t, err)
	return strings.Contains(string(text), `"capture-cni"`)
}

// metric returns a metric's value, -1 for none.
func (k *kept) metric(name string) float64 {
	k.t.Helper()
	families, err := k.registry.Gather()
	lab.Check(k.t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			full := strings.TrimPrefix(family.GetName(), "capture_cni_")
			for _, label := range m.GetLabel() {
				full += " " + label.GetValue()
			}
			if full == name {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return -1
}

// expect compares metrics and the current report.
func (k *kept) expect(when, report string, metrics map[string]float64) {
	k.t.Helper()
	if got := withoutCodes(k.CurrentReport(k.t.Context()).String()); got != withoutCodes(report) {
		k.t.Errorf("%s: %s, want %s", when, got, report)
	}
	for name, want := range metrics {
		if got := k.metric(name); got != want {
			k.t.Errorf("%s: the metric %s is %v, want %v", when, name, got, want)
		}
	}
}

const good = "the node is in the desired state, in mode insert"

// TestRepair has another program remove the entry, once and then again and again. A lost entry is
// restored in the same way while the node has no valid credentials.
func TestRepair(t *testing.T) {
	t.Parallel()
	for name, loses := range map[string]func(*Node){"good": func(*Node) {}, "no credentials": func(n *Node) { n.Credentials = credentials.State{} }} {
		t.Run(name, func(t *testing.T) { testRepair(t, loses) })
	}
}

func testRepair(t *testing.T, loses func(*Node)) {
	synctest.Test(t, func(t *testing.T) {
		const (
			lately = "\nnote: another program changed the network configuration lately, and the agent then wrote its entry"
			who    = "an unknown program keeps removing the entry (mode insert, /etc/cni/net.d/10-ptp.conflist, network podnet): " +
				"find the program that writes there, or use another mode"
			logged = `msg="another program keeps removing the entry"`
		)
		k := keep(t, nil, nil)
		k.expect("at the start", "owner: the agent has not checked the node yet", map[string]float64{"node_good owner": 0, "node_good entry": 1})
		if found := k.lastReport(); found.Findings[0].Severity != report.Waiting || found.Mode != report.Insert {
			t.Errorf("at the start: %+v", found)
		}
		k.resync(t.Context(), false)
		k.checkToken(t.Context())
		k.expect("at first", good, map[string]float64{
			"token_rejected_total": 0,
			"node_good owner":      1, "node_good entry": 1, "entry_repairs_total": 0, "credentials_checked_timestamp_seconds": 0, "credentials_fallback": 0,
		})
		loses(k.node)
		k.rewrite()
		k.expect("removed", "entry: 10-ptp.conflist, which the runtime loads, lacks an up-to-date capture-cni entry", map[string]float64{"node_good entry": 0})
		for i := range promptRepairs {
			k.rewrite()
			k.repair(t.Context())
			k.expect("repaired", good+lately, map[string]float64{
				"node_good entry": 1, "entry_repairs_total": float64(i + 1), "entry_contended unknown": -1,
			})
		}
		k.repair(t.Context()) // it is there
		for range 8 {
			k.rewrite()
			k.repair(t.Context())
		}
		k.expect("contended", good+"\nwarning: "+who+lately, map[string]float64{"entry_repairs_total": promptRepairs + 8, "entry_contended unknown": 1})
		if n := strings.Count(k.log.String(), logged); n != 6 || !strings.Contains(k.log.String(), "writer=unknown back-off=1s") { // 1 to 30 s
			t.Errorf("%d contentions are logged: %s", n, k.log)
		}
		k.rewrite()
		missing := "entry: 10-ptp.conflist, which the runtime loads, lacks an up-to-date capture-cni entry\nentry: " + who
		k.expect("contended, and removed", missing+lately, map[string]float64{"node_good entry": 0})
		time.Sleep(quietPeriod)
		k.resync(t.Context(), false)
		k.expect("not yet quiet", good+"\nwarning: "+who+lately, map[string]float64{"entry_contended unknown": 1})
		time.Sleep(time.Nanosecond)
		k.resync(t.Context(), false)
		k.expect("quiet", good+lately, map[string]float64{"entry_contended unknown": -1})
		time.Sleep(reportWindow - quietPeriod - 1)
		k.expect("long ago", good, nil)
		if !k.nextResync.Equal(k.last.Load().at.Add(resyncInterval)) {
			t.Errorf("the next resync is at %s", k.nextResync)
		}
	})
}

// TestSlowWriter has another program that removes the entry so seldom that no repair waits: it is
// logged once.
func TestSlowWriter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := keep(t, nil, nil)
		k.resync(t.Context(), false)
		for range promptRepairs + 3 {
			time.Sleep(7 * time.Second)
			k.rewrite()
			k.repair(t.Context())
		}
		if n := strings.Count(k.log.String(), "another program keeps removing the entry"); n != 1 {
			t.Errorf("logged %d times: %s", n, k.log)
		}
	})
}

// TestReports has what else is wrong with a node.
func TestReports(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := keep(t, nil, func(s *Settings) { s.BesideIstioCNI = true })
		lab.Check(t, os.WriteFile(k.node.Settings.At(ptpPath), []byte(machine.SidecarList), 0o644))
		k.podsErr = errors.New("the pods are not listed yet")
		k.resync(t.Context(), false)
		if report := k.lastReport().String(); report != "pods: the pods are not listed yet [lookups-unanswered]" {
			t.Errorf("reported %s", report)
		}
		if err := k.Ready(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "pods: the pods are not listed yet [lookups-unanswered]") {
			t.Errorf("ready: %v", err)
		}
		if err := k.Accepts(t.Context(), capture.PodRef{}); err == nil || !strings.HasPrefix(err.Error(), "pods: the pods are not listed yet") {
			t.Errorf("accepts: %v", err)
		}
		k.SetTainted(true)
		for name, want := range map[string]float64{"taint": 1, "node_good pods": 0, "node_good binary": 1, "other_mesh_entry allowed istio-cni": 1} {
			if got := k.metric(name); got != want {
				t.Errorf("the metric %s is %v, want %v", name, got, want)
			}
		}
		k.podsErr = nil
		lab.Check(t, os.WriteFile(k.node.Settings.At(ptpPath), []byte(machine.LinkerdList), 0o644))
		k.repair(t.Context())
		k.expect("another mesh", good+"\nnote: another program changed the network configuration lately, and the agent then wrote its entry", nil)
		for name, want := range map[string]float64{"other_mesh_entry allowed istio-cni": -1, "other_mesh_entry allowed linkerd-cni": 1} {
			if got := k.metric(name); got != want {
				t.Errorf("the metric %s is %v, want %v", name, got, want)
			}
		}
		k.resync(t.Context(), false)
		k.resync(t.Context(), false)
		if n := strings.Count(k.log.String(), `msg="checked the node"`); n != 3 || strings.Count(k.log.String(), "not listed yet") != 1 { // not yet, pods, and good
			t.Errorf("%d reports are logged: %s", n, k.log)
		}
		var missing Report
		missing.Add(PartPods, errors.New("not listed"))
		k.setReport(missing)
		lab.Check(t, os.WriteFile(k.node.Settings.At(ptpPath), []byte("{"), 0o644))
		k.repair(t.Context())
		if report := k.lastReport().String(); !strings.HasPrefix(report, "pods: not listed [lookups-unanswered]\nentry: 10-ptp.conflist is not complete") {
			t.Errorf("half a list: %s", report)
		}
		k.rewrite()
		k.repair(t.Context())
		if found := k.lastReport(); found.String() != "pods: not listed [lookups-unanswered]" || found.Mode != report.Insert {
			t.Errorf("a list again: %s", found)
		}
		for part, good := range map[string]bool{PartBinary: true, PartBackend: false} { // without the plugin, a repair checks all
			report := Report{}
			report.Add(part, errors.New("missing"))
			k.setReport(report)
			if k.repair(t.Context()); k.lastReport().Good() != good {
				t.Errorf("%s: %s", part, k.lastReport())
			}
		}
	})
}

// TestClaim waits for another agent, and begins once that has ended.
func TestClaim(t *testing.T) { //nolint:paralleltest // another test's child has the lock until it calls exec
	for name, run := range map[string]func(*Keeper, context.Context){
		"absent":  func(k *Keeper, ctx context.Context) { k.Absent(ctx, true, func() {}) },
		"present": func(k *Keeper, ctx context.Context) { k.Present(ctx) },
	} {
		k := keep(t, nil, nil)
		other, err := keep(t, nil, func(s *Settings) { *s = k.node.Settings; s.Credentials.Pod.Name = "other" }).node.Claim()
		lab.Check(t, err)
		ctx, end := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { run(k.Keeper, ctx) })
		lab.Eventually(t, func() error {
			if report := k.CurrentReport(t.Context()).String(); !strings.HasPrefix(report, "owner: agent /other still runs on the node") || k.lastReport().Mode != "insert" {
				return errors.New(report)
			}
			return nil
		})
		select {
		case <-k.Claimed():
			t.Errorf("%s: the node is claimed", name)
		default:
		}
		lab.Check(t, other.Close())
		<-k.Claimed()
		lab.Eventually(t, func() error {
			if !k.lastReport().Good() || k.metric("node_good owner") != 1 {
				return fmt.Errorf("%s: %s", name, k.lastReport())
			}
			return nil
		})
		end()
		running.Wait()
		lock, err := k.node.Claim()
		lab.Check(t, err)
		lab.Check(t, lock.Close())
		waiting := keep(t, nil, func(s *Settings) { *s = k.node.Settings })
		lock, err = k.node.Claim()
		lab.Check(t, err)
		run(waiting.Keeper, ctx) // returns, because its context has ended
		lab.Check(t, lock.Close())
	}
}

// TestAbsent cleans the node if it may, and otherwise keeps it as it is.
func TestAbsent(t *testing.T) {
	t.Parallel()
	for _, force := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			k := keep(t, nil, func(s *Settings) { s.BinDirs = []string{"/opt/cni/bin"} })
			lab.Check(t, os.MkdirAll(k.node.Settings.At("/opt/cni/bin"), 0o755))
			lab.Check(t, os.WriteFile(k.node.Settings.Plugin(), nil, 0o755))
			with := strings.Replace(machine.PtpList, "}]", `},{"type":"capture-cni"}]`, 1)
			lab.Check(t, os.WriteFile(k.node.Settings.At(ptpPath), []byte(with), 0o644))
			stopped := 0
			ctx, end := context.WithCancel(t.Context())
			defer end()
			go k.Absent(ctx, force, func() { stopped++ })
			<-k.Claimed()
			synctest.Wait()
			if k.hasEntry() == force || (stopped == 0) == force {
				t.Errorf("force %v: the entry is there: %v, stopped %d times", force, k.hasEntry(), stopped)
			}
			report, began := k.CurrentReport(ctx), k.last.Load().at
			want := "left on the node, so that the runtime can delete the pods that were started with the plugin: /opt/cni/bin/capture-cni"
			if !force {
				want = "entry: with --cri-socket none the agent can't list meshed pods: set --cri-socket, or use --force"
			}
			if report.Good() != force || report.IsGood(PartBinary) != force || !strings.Contains(report.String(), want) || report.Mode != "insert" {
				t.Errorf("force %v: %s", force, report)
			}
			again := map[bool]time.Duration{true: resyncInterval, false: undecidedInterval}[force]
			time.Sleep(again)
			synctest.Wait()
			if took := k.last.Load().at.Sub(began); took != again {
				t.Errorf("force %v: checked again after %s", force, took)
			}
		})
	}
}
