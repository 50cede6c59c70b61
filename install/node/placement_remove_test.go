// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/install/conflist"
)

// TestRemoveFindsAll removes entries that earlier agents left, also where they
// were interrupted, and nothing of others.
func TestRemoveFindsAll(t *testing.T) {
	t.Parallel()
	withEntry := func(text string) string { return strings.Replace(text, "}]", "}, "+string(oldEntry)+"]", 1) }
	fromConf, err := conflist.FromConf([]byte(bridgeConf))
	if err != nil {
		t.Fatal(err)
	}
	made, err := conflist.Parse(fromConf)
	if err != nil {
		t.Fatal(err)
	}
	madeText, err := made.With(oldEntry)
	if err != nil {
		t.Fatal(err)
	}
	own := string(indented(oldEntry))
	for name, test := range map[string]struct {
		mode          Mode
		before, after map[string]string
		found         bool
	}{
		"every list": {
			Insert,
			map[string]string{"10-ptp.conflist": withEntry(ptpList), "20-bridge.conflist": withEntry(bridgeList), "30-broken.conflist": "{"},
			map[string]string{"10-ptp.conflist": ptpList, "20-bridge.conflist": bridgeList, "30-broken.conflist": "{"},
			true,
		},
		"not a list of our own": {Insert, map[string]string{ownedName: withEntry(ptpList)}, map[string]string{ownedName: withEntry(ptpList)}, false},
		"a conf whose owner wrote another": {
			Insert,
			map[string]string{"10-b.conf": ptpConf, "10-b.conf" + originalSuffix: bridgeConf, "10-b.conflist": string(madeText)},
			map[string]string{"10-b.conf": ptpConf},
			true,
		},
		"a conf that is back, its list still there": {
			Insert,
			map[string]string{"10-b.conf": bridgeConf, "10-b.conflist": string(madeText)},
			map[string]string{"10-b.conf": bridgeConf},
			true,
		},
		"a list that only looks made of a conf": {
			Insert,
			map[string]string{"10-b.conf": bridgeConf, "10-b.conflist": withEntry(ptpList)},
			map[string]string{"10-b.conf": bridgeConf, "10-b.conflist": ptpList},
			true,
		},
		"of a network with another name": {
			DropIn,
			map[string]string{"10-ptp.conflist": ptpList, "former/capture-cni.conf": own, "podnet/other.conf": "{}"},
			map[string]string{"10-ptp.conflist": ptpList, "podnet/other.conf": "{}"},
			true,
		},
		"without a list": {DropIn, map[string]string{"former/capture-cni.conf": own, "podnet/capture-cni.conf": own}, map[string]string{}, true},
		"unfinished files": {
			DropIn,
			map[string]string{"podnet/.capture-cni-tmp-A": "{", "podnet/other.conf": "{}"},
			map[string]string{"podnet/other.conf": "{}"},
			false,
		},
		"an empty directory of others": {DropIn, map[string]string{"other/.keep": ""}, map[string]string{"other/.keep": ""}, false},
		"the chain's other files stay": {MultusChain, map[string]string{chainedName: own, "a.conf": "{"}, map[string]string{"a.conf": "{"}, true},
		"not Multus' other files":      {Multus, map[string]string{"a.conf": own}, map[string]string{"a.conf": own}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			net, p := configDirectory(t, test.before), placements[test.mode]
			if found, err := p.found(net); err != nil || found != test.found {
				t.Errorf("found %v, %v; want %v", found, err, test.found)
			}
			for range 2 { // the second time, there is nothing
				if err := p.remove(net); err != nil {
					t.Fatal(err)
				}
				expectFiles(t, net, test.after)
			}
		})
	}
}

// TestDropInStaysInside follows no link out of the runtime's directory.
func TestDropInStaysInside(t *testing.T) {
	t.Parallel()
	net, elsewhere := configDirectory(t, map[string]string{"10-ptp.conflist": ptpList}), configDirectory(t, map[string]string{"capture-cni.conf": "theirs"})
	if err := os.Symlink(elsewhere.Path(), filepath.Join(net.Path(), "podnet")); err != nil {
		t.Fatal(err)
	}
	p := placements[DropIn]
	if err := p.place(net, oldEntry); err == nil {
		t.Error("the entry was placed behind a link")
	}
	if err := p.remove(net); err != nil {
		t.Error(err)
	}
	expectFiles(t, elsewhere, map[string]string{"capture-cni.conf": "theirs"})
}

// TestEntryThatStays tells of an entry of another mode that can't be removed: the plugin
// would be called twice, or by a list that is out of date.
func TestEntryThatStays(t *testing.T) {
	t.Parallel()
	n, net, _ := listNode(t, map[string]string{primaryFile: ptpList}, Insert, false)
	if err := os.MkdirAll(filepath.Join(net.Path(), ownedName, "in-use"), 0o755); err != nil {
		t.Fatal(err)
	}
	changed, err := n.PlaceEntry(t.Context())
	if !changed || err == nil || !strings.Contains(err.Error(), ownedName) {
		t.Errorf("changed: %v, %v", changed, err)
	}
	if got := typesIn(t, net, primaryFile); got != "ptp capture-cni" {
		t.Errorf("the list has %q", got)
	}
}
