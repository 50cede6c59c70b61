// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/report"
)

// TestBrokenChain names each file with which Multus would skip the chain, places the
// entry all the same, and changes no other file.
func TestBrokenChain(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"05-half.conf":      `{"type": "tun`,
		"10-untyped.conf":   `{"name": "other"}`,
		"20-tuning.conf":    `{"type": "tuning"}`,
		"30-list.conflist":  `{"plugins": [`, // no file that Multus loads
		"40-notes.txt":      "notes",
		"50-sub/other.conf": "{",
	}
	net, p := newNet(t, files), In(report.MultusChain)
	for range 2 {
		err := p.Place(net, OldEntry)
		fault := p.Fault(net, OldEntry)
		for what, err := range map[string]error{"place": err, "fault": fault} {
			if err == nil || IsWaiting(err) {
				t.Fatalf("%s: got %v", what, err)
			}
			for name := range files {
				if broken := name[0] < '2'; strings.Contains(err.Error(), net.Path()+"/"+name) != broken {
					t.Errorf("%s: names %s, which is broken: %v: %v", what, name, broken, err)
				}
			}
		}
	}
	placed := machine.Files(t, net.Dir)
	if placed[ChainedName] != "{\n  \"type\": \"capture-cni\",\n  \"kubeconfig\": \"/var/lib/capture-cni/kubeconfig\"\n}\n" {
		t.Errorf("the entry is %q", placed[ChainedName])
	}
	delete(placed, ChainedName)
	for name, content := range files {
		if placed[name] != content {
			t.Errorf("%s is %q", name, placed[name])
		}
	}
	for _, name := range []string{"05-half.conf", "10-untyped.conf"} {
		if err := os.Remove(filepath.Join(net.Path(), name)); err != nil {
			t.Fatal(err)
		}
	}
	if fault := p.Fault(net, OldEntry); fault != nil {
		t.Errorf("a chain without them: %v", fault)
	}
}

// TestUnreadableNeighbour names a file that Multus can't read as one.
func TestUnreadableNeighbour(t *testing.T) {
	t.Parallel()
	net := newNet(t, map[string]string{ChainedName: "{"}) // which the agent corrects
	for name, target := range map[string]string{"a.conf": "missing", "b.conf": "/etc"} {
		if err := os.Symlink(target, filepath.Join(net.Path(), name)); err != nil {
			t.Fatal(err)
		}
	}
	fault := ChainFault(net)
	if fault == nil || !strings.Contains(fault.Error(), "/a.conf,") || !strings.Contains(fault.Error(), "/b.conf,") || strings.Contains(fault.Error(), ChainedName) {
		t.Errorf("got %v", fault)
	}
}
