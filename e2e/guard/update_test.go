// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/install/telemetry"
)

// updater returns a guard that updates pods to a configuration that a port gives other rules.
func (n *node) updater(t *testing.T, update guard.Update, port int) nodeGuard {
	t.Helper()
	n.netConf = excluding(port)
	return n.newGuard(t, options{update: update})
}

func excluding(port int) string { return fmt.Sprintf(`{"mesh": {"excludeInboundPorts": [%d]}}`, port) }

// excludes returns the settings of a configuration that excludes an inbound port.
func excludes(port uint16) config.Settings {
	settings := config.DefaultSettings()
	settings.Mesh.ExcludeInboundPorts = []uint16{port}
	return settings
}

// updates has the guard find that the pod is outdated, and then update it.
func (g nodeGuard) updates(t *testing.T) {
	t.Helper()
	g.finds(t, report.Outdated)
	g.finds(t, report.Captured)
}

// proxied has only proxies listen: a connection that went past them would be refused. It returns
// who connects to where.
func (p *pod) proxied(t *testing.T, mode string) map[string]*lab.Host {
	t.Helper()
	transparent := map[string]func(string, string, syscall.RawConn) error{"TPROXY": lab.Transparent}[mode]
	echo(t, p.host, inboundPort, transparent)
	echo(t, p.host, 15001, nil)
	targets := map[string]*lab.Host{}
	for _, address := range []string{podAddress, podAddress6} {
		targets[net.JoinHostPort(address, fmt.Sprint(appPort))] = p.peer
	}
	for _, address := range []string{peerAddress, peerAddress6} {
		targets[net.JoinHostPort(address, fmt.Sprint(outsidePort))] = p.host
	}
	return targets
}

// meets has new connections begin all the time, and wants each at a proxy.
func meets(t *testing.T, targets map[string]*lab.Host) speakers {
	t.Helper()
	var all speakers
	for to, from := range targets {
		all = append(all, &speaker{what: "new connections to " + to, speak: func() error { return reach(from, to) }})
	}
	return speak(t, all)
}

// TestUpdate has a pod of each backend, with rules of an earlier configuration. The guard updates
// it once, says so, and leaves what an ADD of today leaves, also in its own files.
func TestUpdate(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"REDIRECT", "TPROXY"} {
		for _, backend := range []config.Backend{config.NFTables, config.IPTablesNFT, config.IPTablesLegacy} {
			t.Run(mode+", "+string(backend), func(t *testing.T) {
				n := newNode()
				n.baselines = t.TempDir()
				conn := n.listen(t)
				p := n.run(t, "web")
				n.dualStack(t, p, mode)
				p.addBy(t, n, backend, excludes(9000))
				earlier := p.rules(t).Stamp
				meeting := meets(t, p.proxied(t, mode))
				meeting.wait(t)
				g := n.updater(t, guard.UpdateRules, 9090)
				g.updates(t)
				meeting.wait(t)
				g.finds(t, report.Captured)
				today := p.rules(t)
				records := receive(t, conn)["web"]
				if len(records) != 1 || records[0].Verdict != telemetry.Updated ||
					!strings.Contains(records[0].Message, "from "+earlier+" to "+today.Stamp) {
					t.Errorf("reported %+v, want the update from %s to %s", records, earlier, today.Stamp)
				}
				if done := g.series(t, "pod_updates_total")["done"]; done != 1 {
					t.Errorf("counted %v updates", done)
				}
				other := newNode()
				other.baselines, other.netConf = t.TempDir(), n.netConf
				fresh := other.run(t, "web")
				other.dualStack(t, fresh, mode)
				fresh.addBy(t, other, config.NFTables, excludes(9090))
				other.newGuard(t, options{}).finds(t, report.Captured)
				if p.list(t) != fresh.list(t) || n.baseline(t) != other.baseline(t) {
					t.Errorf("an ADD leaves the baseline %s and the rules\n%s\nupdated: %s\n%s",
						other.baseline(t), fresh.list(t), n.baseline(t), p.list(t))
				}
			})
		}
	}
}

// baseline returns what the guard keeps of the pod web.
func (n *node) baseline(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(n.baselines, "web"))
	lab.Check(t, err)
	return string(content)
}

// TestThousandConnections keeps 1,000 connections through the proxies open during 50 updates, in
// both directions and families, while others begin.
func TestThousandConnections(t *testing.T) {
	t.Parallel()
	const connections, updates = 1000, 50
	for _, mode := range []string{"REDIRECT", "TPROXY"} {
		t.Run(mode, func(t *testing.T) {
			n := newNode()
			p := n.run(t, "web")
			n.dualStack(t, p, mode)
			p.add(t, n)
			targets := p.proxied(t, mode)
			var open []net.Conn
			for to, from := range targets {
				for range connections / len(targets) {
					open = append(open, dial(t, from, to))
				}
			}
			meeting := meets(t, targets)
			for i := range updates {
				n.updater(t, guard.UpdateRules, 9000+i).updates(t)
				for _, conn := range open {
					if err := works(conn); err != nil {
						t.Fatalf("after update %d, the connection from %s to %s: %v", i, conn.LocalAddr(), conn.RemoteAddr(), err)
					}
				}
			}
			meeting.wait(t)
		})
	}
}

// TestEarlierPodsUpdated updates pods of earlier releases under their connections.
func TestEarlierPodsUpdated(t *testing.T) {
	t.Parallel()
	for _, version := range lab.EarlierVersions {
		for _, mode := range []string{"REDIRECT", "TPROXY"} {
			t.Run(version+", "+mode, func(t *testing.T) {
				n := newNode()
				p := n.run(t, "web")
				n.dualStack(t, p, mode)
				p.captureByEarlierRelease(t, n, version)
				targets := p.proxied(t, mode)
				var open speakers
				for to, from := range targets {
					conn := dial(t, from, to)
					open = append(open, &speaker{what: "the connection to " + to, speak: func() error { return works(conn) }})
				}
				speaking := append(meets(t, targets), speak(t, open)...)
				speaking.wait(t)
				n.newGuard(t, options{update: guard.UpdateRules}).updates(t)
				speaking.wait(t)
				p.holdsWhatADDInstalls(t, n)
			})
		}
	}
}
