// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOwnedFollows has the primary's list change, break and go away.
func TestOwnedFollows(t *testing.T) {
	t.Parallel()
	net, p := configDirectory(t, map[string]string{"10-ptp.conflist": ptpList}), placements[Owned]
	if err := p.place(net, oldEntry); err != nil {
		t.Fatal(err)
	}
	writeConfig(t, net, "10-ptp.conflist", bridgeList)
	if fault := p.fault(net, oldEntry); fault == nil || !strings.Contains(fault.Error(), "is outdated: the primary list has changed") {
		t.Errorf("after a change, fault is %v", fault)
	}
	if err := p.place(net, oldEntry); err != nil {
		t.Fatal(err)
	}
	expectState(t, p, net, oldEntry, true, true)
	embedded := filesIn(t, net)[ownedName]
	if !strings.Contains(embedded, `"bridge"`) {
		t.Errorf("the new list is not embedded: %s", embedded)
	}
	for name, change := range map[string]func(){
		"half written": func() { writeConfig(t, net, "10-ptp.conflist", bridgeList[:20]) },
		"gone":         func() { _ = os.Remove(filepath.Join(net.Path(), "10-ptp.conflist")) },
	} {
		change()
		if fault := p.fault(net, oldEntry); !isWaiting(fault) || !strings.Contains(fault.Error(), "may be outdated, it embeds 10-ptp.conflist") {
			t.Errorf("%s: fault is %v", name, fault)
		}
		if err := p.place(net, newEntry); !isWaiting(err) || filesIn(t, net)[ownedName] != embedded {
			t.Errorf("%s: placing says %v, and left\n%s", name, err, filesIn(t, net)[ownedName])
		}
	}
}
