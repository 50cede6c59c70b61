// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// rememberedWays are those by conntrack's entries.
var rememberedWays = []struct {
	name     string
	memories []memory
	open     func(m memory, t *testing.T, w world, f family) bool
}{
	{"a conntrack entry", waysOut, func(m memory, t *testing.T, w world, f family) bool { return len(m.out(t, w, f, app)) > 0 }},
	{"a conntrack entry", waysIn, memory.in},
	{"forged SYN", simultaneousOpens, memory.opens},
}

// TestOracleWays tries all ways under Istio's own rules, and compares which are open with
// the lists of the reference.
func TestOracleWays(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	plugin := newIstioCNI(t)
	captured := func(t *testing.T, pod *corev1.Pod, mesh config.Mesh, newWorld func() world) world {
		t.Helper()
		w, err := captureByIstio(newWorld, func(host *lab.Host) error { return plugin.add(host, pod, environmentOf(mesh)...) })
		lab.Check(t, err)
		lab.Check(t, w.pod.WaitForIPv6())
		return w
	}
	defaults := config.DefaultSettings().Mesh
	type row struct{ way, memory string }
	found := map[row]bool{} // those that are open in a mode
	for _, mode := range modes {
		for _, ways := range rememberedWays {
			inWorlds(t, mode, ways.memories, func(t *testing.T, w world, m memory, f family) {
				key := row{ways.name, m.name}
				found[key] = ways.open(m, t, w, f) || found[key]
			}, func(s scenario) world {
				settings := config.DefaultSettings()
				s.set(&settings)
				return captured(t, s.podForIstio("true"), settings.Mesh, func() world { return newSecondWorld(t, settings.Mesh) })
			})
		}
		for _, way := range slices.Concat(openWays, closedWays) {
			if !slices.Contains(way.modes, mode) {
				continue
			}
			t.Run(mode+", "+way.name, func(t *testing.T) {
				w, key := captured(t, scenario{}.in(mode).podForIstio("true"), defaults, func() world { return newLinks(t) }), row{way: way.name}
				found[key] = way.try(t, w) || found[key]
			})
		}
	}
	w := captured(t, injected(nil, nil), defaults, func() world {
		w := newWorld(t, []int{80}, istioMesh)
		for _, device := range []string{"eth0", "net1"} {
			run("ip", "-6", "address", "flush", "dev", device, "scope", "global")(t, w.pod)
		}
		return w
	})
	lab.Check(t, w.pod.AddAddresses("eth0", podIP[ipv6]+"/64"))
	answer, _, _ := w.ask(out(app, external, 80, ""), ipv6)
	found[row{way: "IPv6 in a pod without an IPv6 address"}] = answer.Server == direct
	renameLoopback(t, w)
	answer, _, _ = w.ask(out(app, external, 80, ""), ipv4)
	found[row{way: "`lo` renamed"}] = answer.Server == direct
	for r, open := range found {
		if heading := headingOf(t, r.way); (heading == openInIstio || heading == openInBoth) != open {
			t.Errorf("%+v: open: %v; the reference says %q", r, open, heading)
		}
	}
	for _, way := range openWays {
		if heading := headingOf(t, way.name); heading != openInBoth {
			t.Errorf("%s is open; the reference says %q", way.name, heading)
		}
	}
}

// Headings of the reference's lists of ways.
const (
	openInIstio = "Closed here, open under Istio's own rules"
	openInBoth  = "Open in both"
)

// headingOf returns the heading under which the reference lists a way.
func headingOf(t *testing.T, way string) (heading string) {
	t.Helper()
	page, err := os.ReadFile("../../deploy/reference/guarantees.md")
	lab.Check(t, err)
	_, ways, _ := strings.Cut(string(page), "\n## Ways around capture\n")
	for line := range strings.Lines(ways) {
		if rest, found := strings.CutPrefix(line, "### "); found {
			heading = strings.TrimSpace(rest)
		} else if numbered.MatchString(line) && strings.Contains(strings.ToLower(line), strings.ToLower(way)) {
			return heading
		}
	}
	t.Fatalf("the reference has no item about %q", way)
	return ""
}

var numbered = regexp.MustCompile(`^[0-9]+\. `)
