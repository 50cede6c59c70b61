// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
	net, p := configDirectory(t, files), placements[MultusChain]
	for range 2 {
		err := p.place(net, oldEntry)
		fault := p.fault(net, oldEntry)
		for what, err := range map[string]error{"place": err, "fault": fault} {
			if err == nil || isWaiting(err) {
				t.Fatalf("%s: got %v", what, err)
			}
			for name := range files {
				if broken := name[0] < '2'; strings.Contains(err.Error(), net.Path()+"/"+name) != broken {
					t.Errorf("%s: names %s, which is broken: %v: %v", what, name, broken, err)
				}
			}
		}
	}
	placed := filesIn(t, net)
	if placed[chainedName] != string(indented(oldEntry)) {
		t.Errorf("the entry is %q", placed[chainedName])
	}
	delete(placed, chainedName)
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
	if fault := p.fault(net, oldEntry); fault != nil {
		t.Errorf("a chain without them: %v", fault)
	}
}

// TestUnreadableNeighbour names a file that Multus can't read as one.
func TestUnreadableNeighbour(t *testing.T) {
	t.Parallel()
	net := configDirectory(t, nil)
	for name, target := range map[string]string{"a.conf": "missing", "b.conf": "/etc"} {
		if err := os.Symlink(target, filepath.Join(net.Path(), name)); err != nil {
			t.Fatal(err)
		}
	}
	fault := chainFault(net)
	if fault == nil || !strings.Contains(fault.Error(), "/a.conf,") || !strings.Contains(fault.Error(), "/b.conf,") {
		t.Errorf("got %v", fault)
	}
}
