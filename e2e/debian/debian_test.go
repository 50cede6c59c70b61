// SPDX-License-Identifier: Apache-2.0

package debian

import (
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestFetchFails expects that what a mirror does not have is told from a mirror that is
// broken or forged.
func TestFetchFails(t *testing.T) {
	lab.RequireProgram(t, "apt-get")
	release := "Suite: oldstable\nCodename: test\nDate: Mon, 01 Jan 2024 00:00:00 UTC\nArchitectures: amd64 arm64\nComponents: main\nSHA256:\n"
	for name, test := range map[string]struct {
		answer  http.HandlerFunc
		gone    bool
		message string
	}{
		"no such suite": {http.NotFound, true, "does not have a Release file"},
		"forbidden":     {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, false, "403"},
		"out of order":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, false, "503"},
		"unsigned": {func(w http.ResponseWriter, r *http.Request) {
			if filepath.Base(r.URL.Path) != "Release" {
				http.NotFound(w, r)
				return
			}
			_, _ = w.Write([]byte(release))
		}, false, "is not signed"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(test.answer)
			defer server.Close()
			a := apt{directory: t.TempDir(), mirror: server.URL + "/debian"}
			_, err := a.fetch(t.Context(), Request{Suite: "test", Packages: []string{"iptables"}})
			if err == nil || errors.Is(err, ErrGone) != test.gone || !strings.Contains(err.Error(), test.message) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestMissingPackage expects that what counts as installed needs no mirror, and that
// anything else is missing there.
func TestMissingPackage(t *testing.T) {
	lab.RequireProgram(t, "apt-get")
	a := apt{directory: t.TempDir(), mirror: "http://127.0.0.1:1/debian"}
	if err := a.prepare(Request{Suite: "test", Without: []string{"libc6"}}); err != nil {
		t.Fatal(err)
	}
	if out, err := a.run(t.Context(), "apt-get", "install", "libc6"); err != nil {
		t.Errorf("libc6: %v: %s", err, out)
	}
	out, err := a.run(t.Context(), "apt-get", "install", "nosuch")
	if err == nil || !errors.Is(failure(err, out, missing...), ErrGone) {
		t.Errorf("nosuch: %v: %s", err, out)
	}
	if _, err := a.dependencies(t.Context(), "nosuch"); !errors.Is(err, ErrGone) {
		t.Errorf("what nosuch depends on: %v", err)
	}
}

// TestMeta expects the dependencies of a package, and no other relation of it.
func TestMeta(t *testing.T) {
	lab.RequireProgram(t, "apt-cache")
	a := apt{directory: t.TempDir(), mirror: "http://127.0.0.1:1/debian"}
	if err := a.prepare(Request{Suite: "test", Without: []string{"libc6", "linux-image-6.1.0-9-amd64"}}); err != nil {
		t.Fatal(err)
	}
	status, err := os.OpenFile(filepath.Join(a.directory, "status"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer status.Close()
	const meta = "Package: linux-image-amd64\nStatus: install ok installed\nArchitecture: all\nVersion: 1\n" +
		"Depends: linux-image-6.1.0-9-amd64 (>= 6.1), libc6\nRecommends: firmware\nSuggests: libc6\n"
	if _, err := status.WriteString(meta); err != nil {
		t.Fatal(err)
	}
	got, err := a.dependencies(t.Context(), "linux-image-amd64")
	if want := []string{"linux-image-6.1.0-9-amd64", "libc6"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	if got, err := a.dependencies(t.Context(), "libc6"); err == nil {
		t.Errorf("a package that depends on nothing: %q", got)
	}
}

// TestMirror expects the machine's own mirror for a suite, and Debian's where it has none.
func TestMirror(t *testing.T) {
	directory := t.TempDir()
	t.Setenv("PATH", directory)
	for _, tt := range []struct{ sites, suite, want string }{
		{"", "bookworm", "http://deb.debian.org/debian"},
		{"", "bookworm-security", "http://deb.debian.org/debian-security"},
		{"http://near/debian-security http://near/debian/", "bookworm-backports", "http://near/debian/"},
		{"http://near/debian/ http://near/debian-security", "bookworm-security", "http://near/debian-security"},
	} {
		script := "#!/bin/sh\necho " + tt.sites + "\n"
		if err := lab.WriteProgram(filepath.Join(directory, "apt-get"), []byte(script)); err != nil {
			t.Fatal(err)
		}
		if got := mirror(t.Context(), tt.suite); got != tt.want {
			t.Errorf("%s of %q: got %s, want %s", tt.suite, tt.sites, got, tt.want)
		}
	}
}

// TestUnpackedBefore expects no apt-get where the packages lie already.
func TestUnpackedBefore(t *testing.T) {
	parent, request := t.TempDir(), Request{Suite: "bullseye", Packages: []string{"iptables"}}
	want := filepath.Join(parent, request.name())
	if err := os.Mkdir(want, 0o755); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "libmnl0_1%3a1.0.4-3_amd64.deb")
	if err := os.WriteFile(archive, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := recordPackages(want, []string{archive}); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", "")
	root, err := Unpack(t.Context(), parent, request)
	if err != nil || root != want {
		t.Fatalf("got %q, %v; want %q", root, err, want)
	}
	versions, err := Versions(root)
	if want := map[string]string{"libmnl0": "1:1.0.4-3"}; err != nil || !maps.Equal(versions, want) {
		t.Errorf("got %v, %v; want %v", versions, err, want)
	}
	request.Without = []string{"libc6"}
	if _, err := Unpack(t.Context(), parent, request); err == nil {
		t.Error("another request was answered with the same packages")
	}
	if left, _ := os.ReadDir(parent); len(left) != 1 {
		t.Errorf("a failure left %v", left)
	}
}

func TestSources(t *testing.T) {
	for suite, want := range map[string]string{
		"bullseye":           "bullseye main\n",
		"bookworm-backports": "bookworm main\nbookworm-backports main\n",
	} {
		line := "deb [signed-by=" + keyring + "] http://mirror/debian "
		if got := strings.ReplaceAll(sources("http://mirror/debian", suite), line, ""); got != want {
			t.Errorf("%s: %q, want %q", suite, got, want)
		}
	}
}

// TestMergeUsr expects links for those directories alone that exist below /usr only.
func TestMergeUsr(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"usr/lib", "usr/sbin", "sbin"} {
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := mergeUsr(root); err != nil {
		t.Fatal(err)
	}
	if link, err := os.Readlink(filepath.Join(root, "lib")); link != "usr/lib" {
		t.Errorf("lib leads to %q, %v", link, err)
	}
	for _, name := range []string{"sbin", "bin"} {
		if link, err := os.Readlink(filepath.Join(root, name)); err == nil {
			t.Errorf("%s leads to %q", name, link)
		}
	}
}
