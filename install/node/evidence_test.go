// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/cri"
)

// silent is a runtime that reports no status.
type silent struct{ machine.Named }

func (silent) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return nil, errors.New("secret")
}

// evidenceOf returns a part of a node's evidence without what differs between two runs.
func evidenceOf(t *testing.T, n *Node, name string) (lines []map[string]any, err error) {
	t.Helper()
	var out bytes.Buffer
	for _, part := range n.Evidence() {
		if part.Name == name {
			err = part.Write(t.Context(), &out)
		}
	}
	for decoder := json.NewDecoder(&out); decoder.More(); {
		line := map[string]any{}
		lab.Check(t, decoder.Decode(&line))
		if modified, ok := line["modified"].(string); ok {
			at, err := time.Parse(time.RFC3339Nano, modified)
			if err != nil || time.Since(at) > time.Hour || !strings.HasSuffix(modified, "Z") {
				t.Errorf("%s: modified %s, %v", name, modified, err)
			}
			delete(line, "modified")
		}
		lines = append(lines, line)
	}
	return lines, err
}

// expectEvidence compares a part with JSON documents, one a line, and its error.
func expectEvidence(t *testing.T, n *Node, name, want, fault string) {
	t.Helper()
	var wanted []map[string]any
	for decoder := json.NewDecoder(strings.NewReader(want)); decoder.More(); {
		line := map[string]any{}
		lab.Check(t, decoder.Decode(&line))
		wanted = append(wanted, line)
	}
	got, err := evidenceOf(t, n, name)
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Errorf("%s: %s", name, diff)
	}
	if text := fmt.Sprint(err); fault == "" && err != nil || fault != "" && !strings.HasPrefix(text, fault) {
		t.Errorf("%s: %v, want %q", name, err, fault)
	}
}

// TestProgramEvidence has plugins that run, that fail, and that are no plugins.
func TestProgramEvidence(t *testing.T) {
	t.Parallel()
	wanted := DefaultSettings(machine.New(t, map[string]string{"/a/other": "", "/b/other": "", "/c/other": "", "/d/capture-cni": "", "/e/other": ""}))
	wanted.BinDirs = []string{"/a", "/b", "/c", "/d", "/e"}
	for directory, text := range map[string]string{
		"/a": "#!/bin/sh\necho '{\"supportedVersions\": []}'\n", "/b": "#!/bin/sh\nexit 3\n", "/c": "#!/bin/sh\necho secret\n",
	} {
		lab.Check(t, lab.WriteProgram(wanted.At(directory)+"/capture-cni", []byte(text)))
	}
	expectEvidence(t, New(wanted, nil, nil, slog.New(slog.DiscardHandler)), "node/programs.jsonl", `
		{"path": "/a/capture-cni", "mode": "-rwxr-xr-x", "size": 43, "runs": true}
		{"path": "/b/capture-cni", "mode": "-rwxr-xr-x", "size": 17, "runs": false, "fault": "exit status 3"}
		{"path": "/c/capture-cni", "mode": "-rwxr-xr-x", "size": 22, "runs": false, "fault": "its response is not the expected one"}
		{"path": "/d/capture-cni", "mode": "-rw-r--r--", "size": 0, "runs": false, "fault": "fork/exec `+wanted.Root+`/d/capture-cni: permission denied"}`,
		"open "+wanted.Root+"/e/capture-cni: no such file")
	goTool, err := exec.LookPath("go")
	lab.Check(t, err)
	for _, directory := range []string{"/a", "/b", "/c", "/d"} {
		lab.Check(t, os.RemoveAll(wanted.At(directory)))
	}
	lab.Check(t, exec.Command("cp", goTool, wanted.At("/e/capture-cni")).Run())
	lines, _ := evidenceOf(t, New(wanted, nil, nil, slog.New(slog.DiscardHandler)), "node/programs.jsonl")
	if len(lines) != 1 || !strings.HasPrefix(fmt.Sprint(lines[0]["go"]), "go1.") {
		t.Errorf("a program in Go: %v", lines)
	}
}

// TestCredentialEvidence has no credentials, as it should, and a token and a CA.
func TestCredentialEvidence(t *testing.T) {
	t.Parallel()
	const state, kubeconfig = "/var/lib/capture-cni/", `"kubeconfig": "/var/lib/capture-cni/kubeconfig"`
	server, err := kubeapi.Start(kubeapi.WithValidity(time.Unix(0, 0), time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)))
	lab.Check(t, err)
	lab.Check(t, server.Close())
	token := "h." + base64.RawURLEncoding.EncodeToString([]byte(`{"iat": 1767225600, "exp": 4102444800}`)) + ".s"
	for want, tt := range map[string]struct {
		onNode bool
		files  map[string]string
		fault  string
	}{
		`{"wanted": false, ` + kubeconfig + `}`: {false, map[string]string{"/other": ""}, ""},
		`{"wanted": false, ` + kubeconfig + `, "fault": "/var/lib/capture-cni/token: expected no credentials on the node; the agent removes them once every installed plugin gets pods from it"}`: {
			false, map[string]string{state + "token": token}, "",
		},
		`{"wanted": true, ` + kubeconfig + `, "fault": "/var/lib/capture-cni contains no token"}`: {true, map[string]string{"/other": ""}, "open "},
		`{"wanted": true, ` + kubeconfig + `, "tokenIssued": "2026-01-01T00:00:00Z", "tokenEnds": "2100-01-01T00:00:00Z", "caEnds": "2040-01-01T00:00:00Z"}`: {
			true, map[string]string{state + "token": token, state + "kubeconfig": "", state + "ca.crt": string(server.Cert.PEM)}, "",
		},
	} {
		wanted := DefaultSettings(machine.New(t, tt.files))
		wanted.Credentials.OnNode = tt.onNode
		expectEvidence(t, New(wanted, nil, nil, slog.New(slog.DiscardHandler)), "node/credentials.json", want, tt.fault)
	}
}

// TestRuntimeEvidence has runtimes that report what they have loaded, or not.
func TestRuntimeEvidence(t *testing.T) {
	t.Parallel()
	const loaded = `{"PluginDirs": ["/opt/cni/bin", "a b\u0000"], "PluginConfDir": "/etc/cni/net.d", "PluginMaxConfNum": 1,
		"Networks": [{"Config": {"Name": "podnet", "Source": "{\"cniVersion\": \"1.0.0\", \"name\": \"podnet\", \"plugins\": [{\"type\": \"ptp\"}]}"}}, {"Config": {"Source": "{"}}]}`
	named := machine.Named{Runtime: "containerd", Release: "2.1.0"}
	absent, err := cri.New(t.TempDir() + "/s")
	lab.Check(t, err)
	defer absent.Close()
	const none = `{"name": "containerd", "version": "2.1.0", "confDir": "", "binDirs": [], "maxConfNum": 0, "networks": []}`
	for name, tt := range map[string]struct {
		runtime     *cri.Client
		want, fault string
	}{
		"no socket":    {nil, "", "--cri-socket is none"},
		"no answer":    {absent, "", "reading the runtime's version: Unknown"},
		"no status":    {machine.Serve(t, silent{named}), none, "reading the runtime's status: the request failed"},
		"CRI-O":        {machine.Serve(t, named), none, cri.ErrNoConfig.Error()},
		"another form": {machine.Serve(t, machine.Loading{Named: named, Config: "secret"}), none, cri.ErrNoConfig.Error()},
		"what it loads": {machine.Serve(t, machine.Loading{Named: named, Config: loaded}), `{"name": "containerd", "version": "2.1.0", "confDir": "/etc/cni/net.d", "binDirs": ["/opt/cni/bin", "(not of the expected form, not shown)"], "maxConfNum": 1,
			"networks": [{"name": "podnet", "cniVersion": "1.0.0", "plugins": [{"type": "ptp"}]}, {"name": "", "plugins": null}]}`, "not JSON at byte 1"},
	} {
		t.Run(name, func(t *testing.T) {
			expectEvidence(t, New(Settings{}, nil, tt.runtime, slog.New(slog.DiscardHandler)), "node/runtime.json", tt.want, tt.fault)
		})
	}
}

// TestListEvidence outlines the lists, and shows only the documented keys of our entry.
func TestListEvidence(t *testing.T) {
	t.Parallel()
	const net = "/etc/cni/net.d/"
	wanted := DefaultSettings(machine.New(t, map[string]string{
		net + "10-a.conflist": `{"cniVersion": "1.0.0", "name": "podnet", "plugins": [{"type": "ptp", "key": "secret"}, ` +
			`{"type": "capture-cni", "kubeconfig": "/k/kubeconfig", "ipv6": {"a": "b"}, "mesh": {"proxyUID": 7, "dnsPort": "secret"}, "password": "secret", "capture": {}}]}`,
		net + "20-b.json": "{", net + "30-c.conf.cilium_bak": `{"type": "bridge"}`, net + "notes.txt": "secret", net + "podnet/capture-cni.conf": `{"type": "capture-cni", "kubeconfig": "/k/kubeconfig"}`,
	}))
	lab.Check(t, os.Symlink("missing", wanted.At(net+"40-d.conf")))
	n := New(wanted, nil, nil, slog.New(slog.DiscardHandler))
	shown := fmt.Sprintf(`"owner": "%d:%d", "mode": "-rw-r--r--"`, os.Geteuid(), os.Getegid())
	expectEvidence(t, n, "node/lists.jsonl", `
		{"file": "10-a.conflist", `+shown+`, "size": 247, "list": {"name": "podnet", "cniVersion": "1.0.0", "plugins": [{"type": "ptp"}, {"type": "capture-cni"}]},
			"own": [{"keys": {"kubeconfig": "/k/kubeconfig", "mesh": {"proxyUID": 7}}, "faulty": ["ipv6", "mesh.dnsPort"], "unknown": 2}]}
		{"file": "20-b.json", `+shown+`, "size": 1, "unread": "not JSON at byte 1"}
		{"file": "30-c.conf.cilium_bak", `+shown+`, "size": 18, "list": {"name": "", "plugins": [{"type": "bridge"}]}}
		{"file": "40-d.conf", "owner": "`+strings.Split(shown, `"`)[3]+`", "mode": "Lrwxrwxrwx", "size": 7, "unread": "no such file or directory"}
		{"file": "podnet/capture-cni.conf", `+shown+`, "size": 54, "list": {"name": "", "plugins": [{"type": "capture-cni"}]}, "own": [{"keys": {"kubeconfig": "/k/kubeconfig"}}]}`, "")
	if gone := n.listEvidence("gone.conf"); gone.Unread != "no such file or directory" || gone.Mode != "" {
		t.Errorf("a file that is gone: %+v", gone)
	}
	for i := range maxListFiles - 5 { // next to those above
		lab.Check(t, os.WriteFile(wanted.At(fmt.Sprintf("%s%03d.conf", net, i)), nil, 0o600))
	}
	for _, want := range []string{"<nil>", "/etc/cni/net.d has 257 files: 256 are listed"} {
		if lines, err := evidenceOf(t, n, "node/lists.jsonl"); len(lines) != maxListFiles || fmt.Sprint(err) != want {
			t.Errorf("%d lines, %v", len(lines), err)
		}
		lab.Check(t, os.WriteFile(wanted.At(net+"more.conf"), nil, 0o600))
	}
	lab.Check(t, os.RemoveAll(wanted.At(net)))
	if lines, err := evidenceOf(t, n, "node/lists.jsonl"); lines != nil || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, %v", lines, err)
	}
}
