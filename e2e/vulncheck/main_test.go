// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// database has a vulnerability of a function that plugin/nlsocket calls, and one that it
// does not.
var database = map[string]string{
	"index/db.json":        `{"modified": "2026-01-01T00:00:00Z"}`,
	"index/modules.json":   `[{"path": "golang.org/x/sys", "vulns": [{"id": "GO-2099-0001", "modified": "2026-01-01T00:00:00Z", "fixed": "99.0.0"}, {"id": "GO-2099-0002", "modified": "2026-01-01T00:00:00Z"}]}]`,
	"index/vulns.json":     `[{"id": "GO-2099-0001", "modified": "2026-01-01T00:00:00Z"}, {"id": "GO-2099-0002", "modified": "2026-01-01T00:00:00Z"}]`,
	"ID/GO-2099-0001.json": entry("GO-2099-0001", "Sendto", `, {"fixed": "99.0.0"}`),
	"ID/GO-2099-0002.json": entry("GO-2099-0002", "Renameat", ""),
}

func entry(id, symbol, fixed string) string {
	return `{"schema_version": "1.3.1", "id": "` + id + `", "modified": "2026-01-01T00:00:00Z", "published": "2026-01-01T00:00:00Z", "summary": "a test", "details": "a test",
		"affected": [{"package": {"name": "golang.org/x/sys", "ecosystem": "Go"}, "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}` + fixed + `]}],
		"ecosystem_specific": {"imports": [{"path": "golang.org/x/sys/unix", "symbols": ["` + symbol + `"]}]}}],
		"database_specific": {"url": "https://pkg.go.dev/vuln/` + id + `"}}`
}

// TestVulncheck expects a vulnerability whose code is called, unless a line accepts it, and
// an error for a line that has ended, is not needed or is none.
func TestVulncheck(t *testing.T) {
	lab.RequireTime(t)
	directory := t.TempDir()
	for name, content := range database {
		path := filepath.Join(directory, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(content), 0o600))
	}
	t.Setenv("GOVULNDB", "file://"+directory)
	now := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	for lines, want := range map[string]string{
		"": "GO-2099-0001: golang.org/x/sys/unix.Sendto is called from github.com/capture-cni/capture-cni/plugin/nlsocket.Send; fixed in v99.0.0",
		"# a comment\n\nGO-2099-0001 2026-11-26 only to the kernel":                      "",
		"GO-2099-0001 2026-11-25 only to the kernel":                                     "GO-2099-0001 was accepted until 2026-11-25",
		"GO-2099-0001 2026-12-31 only to the kernel\nGO-2099-0002 2026-12-31 not called": "GO-2099-0002 is not called any more",
		"GO-2099-0001 2026-12-31":                                                        "expected an ID, a date",
		"GO-2099-0001 tomorrow only to the kernel":                                       "expected a date",
	} {
		file := filepath.Join(directory, "allowed.txt")
		must(t, os.WriteFile(file, []byte(lines), 0o600))
		err := run(t.Context(), file, "", "", []string{"./plugin/nlsocket"}, now)
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", lines, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q: got %v, want %q", lines, err, want)
		}
	}
	for lines, want := range map[string]string{
		"": "GO-2099-0001 affected; Upgrade to a release that https://pkg.go.dev/vuln/GO-2099-0001 does not affect.\n" +
			"GO-2099-0002 not_affected vulnerable_code_not_in_execute_path; \n",
		"GO-2099-0001 2026-12-31 only to the kernel": "GO-2099-0001 not_affected; only to the kernel\nGO-2099-0002 not_affected vulnerable_code_not_in_execute_path; \n",
	} {
		file, vex := filepath.Join(directory, "allowed.txt"), filepath.Join(directory, "openvex.json")
		must(t, os.WriteFile(file, []byte(lines), 0o600))
		must(t, run(t.Context(), file, vex, "1.2.3", []string{"./plugin/nlsocket"}, now))
		content, err := os.ReadFile(vex)
		must(t, err)
		var made document
		must(t, json.Unmarshal(content, &made))
		got := ""
		for _, s := range made.Statements {
			got += s.Vulnerability.Name + " " + strings.TrimSpace(s.Status+" "+s.Justification) + "; " + strings.TrimPrefix(s.Impact, "Govulncheck determined that the vulnerable code isn't called") + s.Action + "\n"
			if s.Products[0].ID != "pkg:golang/github.com/capture-cni/capture-cni@v1.2.3" || !strings.HasPrefix(s.Products[0].Subcomponents[0].ID, "pkg:golang/golang.org%2Fx%2Fsys@") {
				t.Errorf("the products are %+v", s.Products)
			}
		}
		if got != want || made.Context != "https://openvex.dev/ns/v0.2.0" || made.Author != "capture-cni" || made.Version != 1 {
			t.Errorf("%q: %s\nwant:\n%s", lines, content, want)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
