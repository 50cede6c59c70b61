// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"testing"

	"github.com/fsnotify/fsnotify"

	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/report"
)

// TestDropInIsNoticed expects each change of a drop-in to change the directory above, which
// is all that a runtime watches: with another drop-in, the subdirectory stays.
func TestDropInIsNoticed(t *testing.T) {
	t.Parallel()
	net, p := machine.NetDir(t, map[string]string{"10-ptp.conflist": machine.PtpList, "podnet/other.conf": `{"type": "tuning"}`}), In(report.DropIn)
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = watcher.Close() })
	if err := watcher.Add(net.Path()); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name   string
		change func() error
	}{
		{"placed", func() error { return p.Place(Net{Dir: net}, OldEntry) }},
		{"replaced", func() error { return p.Place(Net{Dir: net}, newEntry) }},
		{"removed", func() error { return p.Remove(Net{Dir: net}) }},
	} {
		if err := step.change(); err != nil {
			t.Fatal(err)
		}
		// The kernel queues events in order: that of a mark comes after all of the change.
		machine.Write(t, net, "mark-of-"+step.name, "")
		var noticed bool
		for event := range watcher.Events {
			if event.Name == net.Path()+"/mark-of-"+step.name {
				break
			}
			noticed = noticed || event.Has(fsnotify.Create) || event.Has(fsnotify.Remove)
		}
		if !noticed {
			t.Errorf("the drop-in was %s, and the directory above has not changed", step.name)
		}
	}
}
