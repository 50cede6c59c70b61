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

// TestRemoveFindsAll removes entries that earlier agents left, also where they
// were interrupted, and nothing of others.
func TestRemoveFindsAll(t *testing.T) {
	t.Parallel()
	withEntry := func(text string) string { return strings.Replace(text, "}]", "}, "+string(OldEntry)+"]", 1) }
	fromConf, err := fromConf([]byte(machine.BridgeConf))
	if err != nil {
		t.Fatal(err)
	}
	made, err := Parse(fromConf)
	if err != nil {
		t.Fatal(err)
	}
	madeText, err := made.With(OldEntry)
	if err != nil {
		t.Fatal(err)
	}
	own := string(Indented(OldEntry))
	onlyOurs := strings.Replace(machine.PtpList, `{"type": "ptp"}`, string(OldEntry), 1)
	for name, test := range map[string]struct {
		mode          report.Mode
		before, after map[string]string
		found         bool
		fault         string
	}{
		"every list": {
			report.Insert,
			map[string]string{"10-ptp.conflist": withEntry(machine.PtpList), "20-bridge.conflist": withEntry(bridgeList), "30-broken.conflist": "{"},
			map[string]string{"10-ptp.conflist": machine.PtpList, "20-bridge.conflist": bridgeList, "30-broken.conflist": "{"},
			true, "",
		},
		"not a list of our own": {report.Insert, map[string]string{OwnedName: withEntry(machine.PtpList)}, map[string]string{OwnedName: withEntry(machine.PtpList)}, false, ""},
		"a conf whose owner wrote another": {
			report.Insert,
			map[string]string{"10-b.conf": ptpConf, "10-b.conf" + originalSuffix: machine.BridgeConf, "10-b.conflist": string(madeText)},
			map[string]string{"10-b.conf": ptpConf, "10-b.conf" + originalSuffix: machine.BridgeConf},
			true, "differs from the 10-b.conf that its owner has written since: delete 10-b.conf" + originalSuffix,
		},
		"a conf whose owner wrote it again": {
			report.Insert,
			map[string]string{"10-b.conf": machine.BridgeConf, "10-b.conf" + originalSuffix: machine.BridgeConf, "10-b.conflist": string(madeText)},
			map[string]string{"10-b.conf": machine.BridgeConf},
			true, "",
		},
		"a conf that was renamed": {
			report.Insert,
			map[string]string{"10-b.json" + originalSuffix: machine.BridgeConf, "10-b.conflist": string(madeText)},
			map[string]string{"10-b.json": machine.BridgeConf},
			true, "",
		},
		"a conf that was renamed, its list gone": {
			report.Insert, map[string]string{"10-b.conf" + originalSuffix: machine.BridgeConf}, map[string]string{"10-b.conf": machine.BridgeConf}, true, "",
		},
		"a conf that was renamed, its list another program's": {
			report.Insert,
			map[string]string{"10-b.conf" + originalSuffix: machine.BridgeConf, "10-b.conflist": withEntry(machine.PtpList)},
			map[string]string{"10-b.conf" + originalSuffix: machine.BridgeConf, "10-b.conflist": machine.PtpList},
			true, "would replace 10-b.conflist, which another program has written: delete 10-b.conf" + originalSuffix + ", or rename it to 10-b.conf and delete 10-b.conflist",
		},
		"an empty conf that was renamed": {
			report.Insert, map[string]string{"10-b.conf" + originalSuffix: ""}, map[string]string{"10-b.conf": ""}, true, "",
		},
		"a conf that was renamed, a directory there": {
			report.Insert,
			map[string]string{"10-b.conf" + originalSuffix: machine.BridgeConf, "10-b.conf/file": ""},
			map[string]string{"10-b.conf" + originalSuffix: machine.BridgeConf, "10-b.conf/file": ""},
			true, "not a regular file",
		},
		"a json that is back, its list still there": {
			report.Insert,
			map[string]string{"10-b.json": machine.BridgeConf, "10-b.conflist": string(madeText)},
			map[string]string{"10-b.json": machine.BridgeConf},
			true, "",
		},
		"a conf that is back, its list still there": {
			report.Insert,
			map[string]string{"10-b.conf": machine.BridgeConf, "10-b.conflist": string(madeText)},
			map[string]string{"10-b.conf": machine.BridgeConf},
			true, "",
		},
		"a list that only looks made of a conf": {
			report.Insert,
			map[string]string{"10-b.conf": machine.BridgeConf, "10-b.conflist": withEntry(machine.PtpList)},
			map[string]string{"10-b.conf": machine.BridgeConf, "10-b.conflist": machine.PtpList},
			true, "",
		},
		"our entry alone": {
			report.Insert, map[string]string{"10-a.conflist": onlyOurs}, map[string]string{"10-a.conflist": onlyOurs}, true, "10-a.conflist: the list has no interface plugin",
		},
		"a broken conf that was renamed": {
			report.Insert,
			map[string]string{"10-b.conf" + originalSuffix: "{", "10-b.conflist": machine.PtpList},
			map[string]string{"10-b.conf" + originalSuffix: "{", "10-b.conflist": machine.PtpList},
			true, "would replace 10-b.conflist",
		},
		"of a network with another name": {
			report.DropIn,
			map[string]string{"10-ptp.conflist": machine.PtpList, "former/capture-cni.conf": own, "podnet/other.conf": "{}"},
			map[string]string{"10-ptp.conflist": machine.PtpList, "podnet/other.conf": "{}"},
			true, "",
		},
		"without a list": {report.DropIn, map[string]string{"former/capture-cni.conf": own, "podnet/capture-cni.conf": own}, map[string]string{}, true, ""},
		"unfinished files": {
			report.DropIn,
			map[string]string{"podnet/.capture-cni-tmp-A": "{", "podnet/other.conf": "{}"},
			map[string]string{"podnet/other.conf": "{}"},
			false, "",
		},
		"an empty directory of others": {report.DropIn, map[string]string{"other/.keep": ""}, map[string]string{"other/.keep": ""}, false, ""},
		"the chain's other files stay": {report.MultusChain, map[string]string{ChainedName: own, "a.conf": "{"}, map[string]string{"a.conf": "{"}, true, ""},
		"not Multus' other files":      {report.Multus, map[string]string{"a.conf": own}, map[string]string{"a.conf": own}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			net, p := newNet(t, test.before), In(test.mode)
			if found, err := p.Found(net); err != nil || found != test.found {
				t.Errorf("found %v, %v; want %v", found, err, test.found)
			}
			for range 2 { // the second time, there is nothing
				if err := p.Remove(net); (err == nil) != (test.fault == "") || err != nil && !strings.Contains(err.Error(), test.fault) {
					t.Errorf("removal: %v, want %q", err, test.fault)
				}
				machine.ExpectFiles(t, net.Dir, test.after)
			}
		})
	}
}

// TestUnreadableOriginal leaves a renamed configuration that can't be read.
func TestUnreadableOriginal(t *testing.T) {
	t.Parallel()
	net := newNet(t, nil)
	original := filepath.Join(net.Path(), "10-b.conf"+originalSuffix)
	if err := os.Symlink("missing", original); err != nil {
		t.Fatal(err)
	}
	err := In(report.Insert).Remove(net)
	if target, linkErr := os.Readlink(original); err == nil || linkErr != nil || target != "missing" {
		t.Errorf("%v, and a link to %s, %v", err, target, linkErr)
	}
}

// TestDropInStaysInside follows no link out of the runtime's directory.
func TestDropInStaysInside(t *testing.T) {
	t.Parallel()
	net, elsewhere := newNet(t, map[string]string{"10-ptp.conflist": machine.PtpList}), newNet(t, map[string]string{"capture-cni.conf": "theirs"})
	if err := os.Symlink(elsewhere.Path(), filepath.Join(net.Path(), "podnet")); err != nil {
		t.Fatal(err)
	}
	p := In(report.DropIn)
	if err := p.Place(net, OldEntry); err == nil {
		t.Error("the entry was placed behind a link")
	}
	if err := p.Remove(net); err != nil {
		t.Error(err)
	}
	machine.ExpectFiles(t, elsewhere.Dir, map[string]string{"capture-cni.conf": "theirs"})
}
