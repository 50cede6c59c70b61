// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

// TestWithdrawn begins with what an agent leaves that was killed anywhere in a withdrawal:
// each file alone, none, and all. The node is at fault until all of them are gone.
func TestWithdrawn(t *testing.T) {
	t.Parallel()
	const state, run, bin = "/var/lib/capture-cni/", "/run/capture-cni/", "/opt/cni/bin/"
	all := []string{state + "kubeconfig", state + "token", run + "kubeconfig", run + "token", bin + "capture-cni-lookup"}
	harmless := []string{state + "ca.crt", run + "ca.crt", state + "capture-cni-lookup.last-good"} // go first
	states := [][]string{nil, all, append(harmless, all...)}
	for _, file := range all {
		states = append(states, []string{file})
	}
	for i, left := range states {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			files := map[string]string{bin + "other": "", state + "owner": "", run + "other": ""}
			for _, file := range left {
				files[file] = "{}"
			}
			n := withoutCredentials(t, files)
			if _, err := n.credentialsFault(); (err == nil) != (len(left) == 0) {
				t.Errorf("with %q on the node: %v", left, err)
			}
			if _, err := n.ensureCredentials(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			for _, file := range append(all, harmless...) {
				if _, err := os.Lstat(n.Settings.At(file)); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("with %q on the node, %s stays: %v", left, file, err)
				}
			}
			if _, err := n.credentialsFault(); err != nil {
				t.Errorf("after the withdrawal: %v", err)
			}
			for _, file := range []string{bin + "other", state + "owner", run + "other", bin + conflist.PluginType} {
				if _, err := os.Lstat(n.Settings.At(file)); err != nil {
					t.Errorf("another file: %v", err)
				}
			}
		})
	}
}

// TestWithdrawnInOrder keeps the credentials, whose absence would end the withdrawal, while another file
// can't be removed.
func TestWithdrawnInOrder(t *testing.T) {
	t.Parallel()
	const token = "/var/lib/capture-cni/token"
	n := withoutCredentials(t, map[string]string{token: "{}", "/opt/cni/bin/other": "", "/run/capture-cni/other": "", "/var/lib/capture-cni/capture-cni-lookup.last-good/within": ""})
	if _, err := n.ensureCredentials(t.Context(), false); err == nil {
		t.Error("a directory is removed as a file")
	}
	if _, err := os.Lstat(n.Settings.At(token)); err != nil {
		t.Errorf("the token is gone: %v", err)
	}
}

// withoutCredentials is a node that should have no credentials. Its plugin runs, and its
// agent answers.
func withoutCredentials(t *testing.T, files map[string]string) *Node {
	t.Helper()
	wanted := DefaultSettings(machine.New(t, files))
	var err error
	if wanted.Entry, err = conflist.ParseEntry(nil, report.Insert, wanted.StateDir, wanted.RunDir); err != nil {
		t.Fatal(err)
	}
	wanted.Credentials.Pod = capture.PodRef{Namespace: "mesh", Name: "agent", UID: "1"}
	if err := lab.WriteProgram(wanted.Plugin(), []byte(recordingPlugin)); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(wanted.PodsSocket()), 0o700); err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", wanted.PodsSocket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			pong, _ := json.Marshal(lookup.Answer{Version: capture.PodVersion})
			_, _ = conn.Write([]byte{lookup.Accepted})
			_, _ = lookup.ReadMessage(conn, lookup.MaxRequest)
			_ = lookup.WriteMessage(conn, pong)
			_ = conn.Close()
		}
	}()
	return New(wanted, nil, nil, slog.New(slog.DiscardHandler))
}
