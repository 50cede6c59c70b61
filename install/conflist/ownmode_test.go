// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/report"
)

// TestOwnedFollows has the primary's list change, break and go away.
func TestOwnedFollows(t *testing.T) {
	t.Parallel()
	net, p := newNet(t, map[string]string{"10-ptp.conflist": machine.PtpList}), In(report.Owned)
	if err := p.Place(net, OldEntry); err != nil {
		t.Fatal(err)
	}
	machine.Write(t, net.Dir, "10-ptp.conflist", bridgeList)
	const outdated = "is outdated: the primary list, the entry or this file has changed"
	if fault := p.Fault(net, OldEntry); fault == nil || !strings.Contains(fault.Error(), outdated) {
		t.Errorf("after a change, fault is %v", fault)
	}
	if err := p.Place(net, OldEntry); err != nil {
		t.Fatal(err)
	}
	expectState(t, p, net, OldEntry, true, true)
	embedded := machine.Files(t, net.Dir)[OwnedName]
	if !strings.Contains(embedded, `"bridge"`) {
		t.Errorf("the new list is not embedded: %s", embedded)
	}
	for name, change := range map[string]func(){
		"half written": func() { machine.Write(t, net.Dir, "10-ptp.conflist", bridgeList[:20]) },
		"gone":         func() { _ = os.Remove(filepath.Join(net.Path(), "10-ptp.conflist")) },
	} {
		change()
		if fault := p.Fault(net, OldEntry); !IsWaiting(fault) || !strings.Contains(fault.Error(), "may be outdated, it embeds 10-ptp.conflist") {
			t.Errorf("%s: fault is %v", name, fault)
		}
		if err := p.Place(net, newEntry); !IsWaiting(err) || machine.Files(t, net.Dir)[OwnedName] != embedded {
			t.Errorf("%s: placing says %v, and left\n%s", name, err, machine.Files(t, net.Dir)[OwnedName])
		}
	}
}

// TestRenamedList removes the agent's own list under the name that Cilium has given it, once no mode needs it.
func TestRenamedList(t *testing.T) {
	t.Parallel()
	const renamed, alike = OwnedName + ".cilium_bak", OwnedName + ".other"
	net := newNet(t, map[string]string{"10-ptp.conflist": machine.PtpList, alike: machine.PtpList})
	if err := In(report.Owned).Place(net, OldEntry); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(net.Path(), OwnedName), filepath.Join(net.Path(), renamed)); err != nil {
		t.Fatal(err)
	}
	machine.Write(t, net.Dir, "20-copy.conflist", machine.Files(t, net.Dir)[renamed])
	for _, step := range []struct {
		kept report.Mode
		left []string
	}{
		{report.Insert, []string{alike, renamed, "10-ptp.conflist", "20-copy.conflist"}},
		{"", []string{alike, "10-ptp.conflist", "20-copy.conflist"}},
	} {
		if err := RemoveExcept(net, step.kept); err != nil {
			t.Fatal(err)
		}
		left := slices.Sorted(maps.Keys(machine.Files(t, net.Dir)))
		if slices.Sort(step.left); !slices.Equal(left, step.left) {
			t.Errorf("mode %q: left %q, want %q", step.kept, left, step.left)
		}
	}
}
