// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"archive/tar"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/telemetry"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// secret is every secret of the tests below.
const secret = "hunter2-7Gq"

// hostileLists returns files of a runtime's directory as other authors may write
// them, with a secret in every form that was once found in an archive, and more.
func hostileLists() map[string]string {
	quoted := strings.ReplaceAll(fmt.Sprintf(`{"password":%q}`, secret), `"`, `\"`)
	list := func(plugin string) string {
		return `{"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "calico", ` + plugin + `}]}`
	}
	return map[string]string{
		"20-password.conflist":  list(`"password": "` + secret + `"`),
		"21-nested.conflist":    list(`"config": "` + quoted + `"`),
		"22-psk.conflist":       list(`"ipsec": {"psk": "` + secret + `", "pass": "` + secret + `"}`),
		"23-env.conflist":       list(`"env": [{"name": "ETCD_PASSWORD", "value": "` + secret + `"}]`),
		"24-url.conflist":       list(`"etcd_endpoints": "https://me:` + secret + `@etcd.test:2379"`),
		"25-bearer.conflist":    list(`"header": "Bearer ` + secret + `"`),
		"26-pem.conflist":       list(`"key": "-----BEGIN PRIVATE KEY-----\n` + secret + `\n-----END PRIVATE KEY-----"`),
		"27-base64.conflist":    list(`"data": "` + base64.StdEncoding.EncodeToString([]byte(secret)) + `"`),
		"28-key.conflist":       list(`"` + secret + `": 1, "capabilities": {"a=` + secret + `": true, "bandwidth": true}`),
		"29-names.conflist":     `{"cniVersion": "v=` + secret + `", "name": "password = ` + secret + `", "disableCheck": "` + secret + `", "plugins": [{"type": "password=` + secret + `"}]}`,
		"30-broken.conflist":    `{"cniVersion": "1.0.0", "name": "net", password = "` + secret + `"`,
		"31-text.conf":          `password = "` + secret + `"` + "\npsk: " + secret + "\n",
		"32-versions.conflist":  `{"name": "net", "cniVersions": ["` + secret + `"], "plugins": [{"type": "x"}]}`,
		"33-type.conflist":      `{"name": "net", "plugins": [{"type": {"` + secret + `": 1}, "password": "` + secret + `"}]}`,
		"34-ours.conflist":      list(`"mtu": 1}, {"type": "capture-cni", "backend": "nftables", "excludeNamespaces": ["kube-system"], "password": "` + secret + `"`),
		"35-no-entry.conflist":  list(`"mtu": 1}, {"type": "capture-cni", "backend": "` + secret + `", "logLevel": {"psk": "` + secret + `"}`),
		"36-plain.conf":         `{"cniVersion": "0.3.1", "name": "old", "type": "bridge", "token": "` + secret + `"}`,
		"37-saved.conflist.bak": list(`"password": "` + secret + `"`),
		"38-large.conflist":     list(`"password": "` + secret + strings.Repeat("x", 4<<20) + `"`),
		"net/10-chained.conf":   `{"type": "tuning", "password": "` + secret + `"}`,
	}
}

// TestReportHasNoSecret packs the archive on a node whose files, runtime and
// metrics contain secrets: it has the facts for a support case, and no secret (S13).
func TestReportHasNoSecret(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	a := n.Start(t, "--mode", "insert")
	a.Ready(t)
	a.Stop(t) // it would remove its entry from the lists that follow
	n.writeHostile(t)
	c, socket := n.ServeRuntime(t, false)
	c.Report(withSecrets())
	metrics := serveText(t, "capture_cni_node_good{part=\"entry\"} 1\ngo_goroutines 9\nprocess_open_fds 7\n"+
		"stolen_total{password=\""+secret+"\"} 1\ncapture_cni_node_good{password=\""+secret+"\"} 1\ncapture_cni_adds_total{result=\"a="+secret+"\"} 1\n# HELP x "+secret+"\n"+secret+"\n")
	netConf := filepath.Join(t.TempDir(), "netconf.json")
	lab.Check(t, os.WriteFile(netConf, []byte(`{"backend": "nftables", "ipv6": "always"}`), 0o600))
	files := n.report(t, "--mode", "insert", "--cri-socket", socket, "--netconf", netConf, "--listen", metrics, "--api-server", "https://me:"+secret+"@api.test:6443")

	for name, content := range files {
		for _, form := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret)), strings.ToUpper(secret)} {
			if at := strings.Index(content, form); at >= 0 {
				t.Errorf("%s has a secret: …%s…", name, content[max(0, at-80):min(len(content), at+40)])
			}
		}
	}
	n.expectNoToken(t, files)
	want := strings.Fields(string(read(t, "testdata/report.txt")))
	delete(files, "kernel/modules.txt") // not every kernel has modules
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(files))); diff != "" {
		t.Errorf("the archive's files: %s\nmissing: %s", diff, files["missing.txt"])
	}
	for name, facts := range map[string][]string{
		"about.txt":             {"--mode=insert", "--api-server=https://api.test:6443", "version  "},
		"kernel/version.txt":    {"Linux "},
		"metrics.txt":           {`capture_cni_node_good{part="entry"} 1`, "go_goroutines 9", "process_open_fds 7"},
		"node/verify.json":      {`"mode": "insert"`, `"part": "entry"`},
		"node/programs.jsonl":   {`"runs":true`, n.BinDir + "/capture-cni"},
		"node/credentials.json": {`"tokenIssued":"20`, `"wanted":true`},
		"node/runtime.json":     {`"name": "containerd"`, `"version": "v2.1.0"`, `"type": "bridge"`, `"bandwidth"`, n.NetDir},
		"node/preflight.json":   {"["},
		"adds.json":             {`"name":"web"`},
		"failures.json":         {`"name":"early"`},
		"node/lists.jsonl":      {`"file":"10-kindnet.conflist"`, `"type":"ptp"`, `"type":"portmap"`, `"capabilities":["portMappings"]`, `"kubeconfig":"` + n.StateDir + `/kubeconfig"`, `"mode":"-rw-r--r--"`, `"owner":"0:0"`, `"backend":"nftables"`, `"excludeNamespaces":["kube-system"]`, "not JSON at byte ", `"file":"net/10-chained.conf"`, `"type":"tuning"`, "38-large.conflist", "larger than ", "not a regular file", `"unread":"no such file or directory"`},
	} {
		for _, fact := range facts {
			if !strings.Contains(files[name], fact) {
				t.Errorf("%s does not say %s:\n%.2000s", name, fact, files[name])
			}
		}
	}
}

// writeHostile writes the files with secrets into the node's directories.
func (n *node) writeHostile(t *testing.T) {
	t.Helper()
	lab.Check(t, os.Mkdir(filepath.Join(n.NetDir, "net"), 0o755))
	for name, content := range hostileLists() {
		n.Write(t, name, content)
	}
	lab.Check(t, syscall.Mkfifo(filepath.Join(n.NetDir, "90-pipe.conf"), 0o600))
	lab.Check(t, os.Symlink("/etc/shadow", filepath.Join(n.NetDir, "91-link.conf")))
	lab.Check(t, os.Symlink("/none", filepath.Join(n.NetDir, "92-password="+secret+".conf")))
	keep(t, record.Spool(n.RunDir+"/agent.sock"), "early")
	keep(t, telemetry.HistoryDirectory(n.RunDir+"/agent.sock"), "web")
}

// keep writes a record of a failed ADD, and a file that is no record.
func keep(t *testing.T, dir, pod string) {
	t.Helper()
	record.Keep(dir, record.Record{Pod: capture.PodRef{Namespace: "shop", Name: pod, UID: "6c1f"}, Verdict: record.Failed, Reason: capture.ReasonAnnotations, Message: "not a port"})
	lab.Check(t, os.WriteFile(filepath.Join(dir, "0-other.json"), []byte(`{"version":1,"verdict":"captured","password":"`+secret+`"}`), 0o600))
}

// withSecrets is a list as containerd reports it: with its text.
func withSecrets() (loaded machine.Network) {
	loaded.Config.Name = "net"
	loaded.Config.Source = `{"name": "net", "cniVersion": "1.0.0", "plugins": [{"type": "bridge", "capabilities": {"bandwidth": true}, "password": "` + secret + `"}]}`
	loaded.Config.Plugins = []map[string]any{{"Network": map[string]string{"type": "bridge"}, "Source": `{"psk": "` + secret + `"}`}}
	return loaded
}

// serveText serves a text as metrics.
func serveText(t *testing.T, text string) (address string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// report runs the command and unpacks its archive.
func (n *node) report(t *testing.T, args ...string) map[string]string {
	t.Helper()
	command := exec.Command(filepath.Join(machine.Bin, "capture-cni-node"), append([]string{"report"}, n.Flags(args...)...)...)
	out, err := command.StdoutPipe()
	lab.Check(t, err)
	lab.Check(t, command.Start())
	zipped, err := gzip.NewReader(out)
	lab.Check(t, err)
	files := map[string]string{}
	for archive := tar.NewReader(zipped); ; {
		head, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		lab.Check(t, err)
		content, err := io.ReadAll(archive)
		lab.Check(t, err)
		files[strings.TrimPrefix(head.Name, "capture-cni/")] = string(content)
	}
	lab.Check(t, command.Wait())
	return files
}

// expectNoToken expects none of the plugin's own credentials in the archive.
func (n *node) expectNoToken(t *testing.T, files map[string]string) {
	t.Helper()
	token := strings.TrimSpace(string(read(t, n.StateDir+"/token")))
	for name, content := range files {
		if strings.Contains(content, token) || strings.Contains(content, "BEGIN CERTIFICATE") || strings.Contains(content, "PRIVATE KEY") {
			t.Errorf("%s has the plugin's credentials", name)
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	lab.Check(t, err)
	return content
}
