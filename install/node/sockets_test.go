// SPDX-License-Identifier: Apache-2.0

package node

import (
	"reflect"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/report"
)

// TestDefault spells the defaults, which documents and the chart repeat.
func TestDefault(t *testing.T) {
	t.Parallel()
	want := Settings{
		Root: "/host", Mode: "auto", NetDir: "/etc/cni/net.d", BinDirs: []string{"/opt/cni/bin"}, StateDir: "/var/lib/capture-cni", RunDir: "/run/capture-cni",
		Binary: "/opt/capture-cni/capture-cni", Owner: "capture-cni", Entry: conflist.Entry{Conf: config.Default(), Asked: "nftables"},
	}
	got := DefaultSettings("/host")
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if dirs := got.CredentialDirs(); len(dirs) != 2 || dirs[0] != got.StateDir || dirs[1] != got.RunDir {
		t.Errorf("credentials are in %q", dirs)
	}
	for _, test := range []struct {
		mode report.Mode
		dir  string
		want bool
	}{{report.MultusChain, "/etc/tmpfiles.d", true}, {report.MultusChain, "", false}, {report.Multus, "/etc/tmpfiles.d", false}} {
		if got.Mode, got.TmpfilesDir = test.mode, test.dir; got.KeepsBootFiles() != test.want {
			t.Errorf("%+v: %v", test, !test.want)
		}
	}
}

// TestSockets expects the agent to see the entry's sockets below its root, and none of an
// empty key.
func TestSockets(t *testing.T) {
	t.Parallel()
	s := DefaultSettings("/host")
	for socket, want := range map[string][3]string{
		"":              {},
		"/a/agent.sock": {"/host/a/agent.sock", "/host/a/sockets/pods.sock", "/host/a/sockets/agent.sock"},
	} {
		s.Entry.Conf.AgentSocket = socket
		if got := [3]string{s.AgentSocket(), s.PodsSocket(), s.GuardSocket()}; got != want {
			t.Errorf("%q: got %q, want %q", socket, got, want)
		}
	}
}
