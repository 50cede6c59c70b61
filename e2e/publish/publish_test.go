// SPDX-License-Identifier: Apache-2.0

// Package publish tests how a release is published, and how users verify it, against a
// registry of its own and with a key in place of GitHub's identity.
package publish

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/capture-cni/capture-cni/e2e/guides"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestVerification publishes a release as the workflow does, and runs the guide's commands.
// They fail for a file that was changed, and with another key.
func TestVerification(t *testing.T) {
	lab.RequireTime(t)
	parts, err := filepath.Abs("../../bin/parts")
	lab.Check(t, err)
	for _, program := range []string{"cosign", "crane", "helm"} {
		if _, err := os.Stat(filepath.Join(parts, program)); err != nil {
			lab.Lacks(t, "cosign, crane or Helm: run make publishers")
		}
	}
	server := httptest.NewServer(registry.New(registry.WithReferrersSupport(true)))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	dist, keys := t.TempDir(), t.TempDir()
	t.Setenv("PATH", parts+":"+os.Getenv("PATH"))
	t.Setenv("COSIGN_PASSWORD", "")
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	t.Setenv("PLAIN_HTTP", "1")
	t.Setenv("BUILDER", "https://example.com/builder")
	known := filepath.Join(t.TempDir(), "index") // a database without a vulnerability: the statement has none
	lab.Check(t, os.Mkdir(known, 0o755))
	for name, content := range map[string]string{"db": `{"modified": "2026-01-01T00:00:00Z"}`, "modules": "[]", "vulns": "[]"} {
		lab.Check(t, os.WriteFile(filepath.Join(known, name+".json"), []byte(content), 0o600))
	}
	t.Setenv("GOVULNDB", "file://"+filepath.Dir(known))
	t.Chdir("../..")
	run(t, "make", "release", "DIST="+dist)
	version := strings.TrimSpace(run(t, "sed", "-n", "s/^appVersion: //p", "deploy/chart/Chart.yaml"))
	for _, key := range []string{"release", "other"} {
		run(t, "cosign", "generate-key-pair", "--output-key-prefix", filepath.Join(keys, key))
	}
	run(t, "deploy/release/publish.sh", dist, version, host,
		"--key", filepath.Join(keys, "release.key"), "--tlog-upload=false", "--use-signing-config=false")
	signedBy := func(key string) []string {
		return []string{"VERSION=" + version, "REGISTRY=" + host, "SIGNER=--key=" + filepath.Join(keys, key+".pub") + " --insecure-ignore-tlog=true"}
	}
	expectProvenance(t, filepath.Join(dist, "SHA256SUMS.provenance.sigstore.json"), version)
	commands, err := guides.Commands(".")
	lab.Check(t, err)
	changed := t.TempDir()
	lab.Check(t, os.CopyFS(changed, os.DirFS(dist)))
	lab.Check(t, os.WriteFile(filepath.Join(changed, "SHA256SUMS"), []byte("changed"), 0o600))
	for _, section := range guides.Of("e2e/publish.TestVerification") {
		printed := ""
		for _, command := range commands {
			if command.Guide != section.Guide || command.Section != section.Section {
				continue
			}
			out, err := shell(t, dist, command.Text, signedBy("release"))
			if err != nil {
				t.Errorf("%s\n%v: %s", command, err, out)
			}
			printed += out
			if strings.HasPrefix(command.Text, "cosign ") {
				if out, err := shell(t, dist, command.Text, signedBy("other")); err == nil {
					t.Errorf("with another key, %s accepts: %s", command, out)
				}
			}
			if strings.Contains(command.Text, " SHA256SUMS") {
				if out, err := shell(t, changed, command.Text, signedBy("release")); err == nil {
					t.Errorf("of a changed file, %s accepts: %s", command, out)
				}
			}
		}
		for _, want := range section.Want {
			if !strings.Contains(printed, want) {
				t.Errorf("section %q of %s printed %q, want %q", section.Section, section.Guide, printed, want)
			}
		}
	}
}

// expectProvenance expects this commit and the builder in what was signed.
func expectProvenance(t *testing.T, bundle, version string) {
	t.Helper()
	content, err := os.ReadFile(bundle)
	lab.Check(t, err)
	var signed struct{ DSSEEnvelope struct{ Payload []byte } }
	lab.Check(t, json.Unmarshal(content, &signed))
	commit := strings.TrimSpace(run(t, "git", "rev-parse", "HEAD"))
	for _, want := range []string{`"gitCommit":"` + commit + `"`, "@refs/tags/v" + version, `"id":"https://example.com/builder"`, "toolchain@" + runtime.Version()} {
		if payload := string(signed.DSSEEnvelope.Payload); !strings.Contains(payload, want) {
			t.Errorf("the provenance lacks %s: %s", want, payload)
		}
	}
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
	return string(out)
}

// shell runs a command of a guide in the directory of the release's files.
func shell(t *testing.T, directory, command string, environment []string) (string, error) {
	t.Helper()
	bash := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", command)
	bash.Dir, bash.Env = directory, append(os.Environ(), environment...)
	out, err := bash.CombinedOutput()
	return string(out), err
}
