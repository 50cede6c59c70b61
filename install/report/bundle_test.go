// SPDX-License-Identifier: Apache-2.0

package report

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

var moment = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// bundled writes parts and reads the archive: it returns the files by name, and
// their names in order.
func bundled(t *testing.T, parts ...BundlePart) (files map[string]string, order []string) {
	t.Helper()
	var out bytes.Buffer
	if err := WriteBundle(t.Context(), &out, moment, parts); err != nil {
		t.Fatal(err)
	}
	zipped, err := gzip.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	tarred, err := io.ReadAll(zipped)
	if err := errors.Join(err, zipped.Close()); err != nil || out.Len() > 0 {
		t.Fatalf("%d bytes after the end, %v", out.Len(), err)
	}
	if !bytes.HasSuffix(tarred, make([]byte, 1024)) { // see tar(5)
		t.Error("the archive has no end-of-archive entry")
	}
	files = map[string]string{}
	archive := tar.NewReader(bytes.NewReader(tarred))
	for {
		head, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		name, ours := strings.CutPrefix(head.Name, "capture-cni/")
		if _, twice := files[name]; twice || !ours || head.Mode != 0o600 || head.Typeflag != tar.TypeReg || !head.ModTime.Equal(moment) {
			t.Errorf("unexpected header %+v", head)
		}
		files[name], order = string(content), append(order, name)
	}
	return files, order
}

// part returns a part that writes text and then returns err.
func part(name, text string, err error) BundlePart {
	return BundlePart{name, func(_ context.Context, out io.Writer) error {
		_, writeErr := io.WriteString(out, text)
		return errors.Join(writeErr, err)
	}}
}

func TestBundle(t *testing.T) {
	t.Parallel()
	files, order := bundled(t, part("about.txt", "version 1\n", nil), part("lists/05-cilium.conflist", `{"name":"cilium"}`, nil), part("pods/a.txt", "captured\n", nil))
	if diff := cmp.Diff(map[string]string{
		"about.txt": "version 1\n", "lists/05-cilium.conflist": `{"name":"cilium"}`, "pods/a.txt": "captured\n", "missing.txt": "",
	}, files); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"about.txt", "lists/05-cilium.conflist", "pods/a.txt", "missing.txt"}, order); diff != "" {
		t.Error(diff)
	}
	if files, _ := bundled(t); len(files) != 1 || files["missing.txt"] != "" {
		t.Errorf("without parts: got %q", files)
	}
}

// TestMissing lists failed and incomplete parts, and keeps all others.
func TestMissing(t *testing.T) {
	t.Parallel()
	files, _ := bundled(
		t, part("first.txt", "there", nil), part("none.txt", "", errors.New("it is not there")), part("half.txt", "one of two", errors.New("it broke off")),
		part("empty.txt", "", nil), part("last.txt", "there too", nil),
	)
	if diff := cmp.Diff(map[string]string{
		"first.txt": "there", "half.txt": "one of two", "last.txt": "there too",
		"missing.txt": "none.txt: it is not there\nhalf.txt: it broke off\n",
	}, files); diff != "" {
		t.Error(diff)
	}
}

// TestContext expects a part's context to end with the part.
func TestContext(t *testing.T) {
	t.Parallel()
	var during error
	var part context.Context
	bundled(t, BundlePart{"a.txt", func(ctx context.Context, _ io.Writer) error {
		part, during = ctx, ctx.Err()
		return nil
	}})
	if during != nil || part.Err() == nil {
		t.Errorf("the context has %v during the part, and %v behind it", during, part.Err())
	}
}

// TestTooLarge cuts a part at the limit, and lists it.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	files, _ := bundled(
		t, part("large.txt", strings.Repeat("a", maxPart+1), nil), part("just.txt", strings.Repeat("b", maxPart), nil), part("after.txt", "there", nil),
	)
	if got := files["large.txt"]; got != strings.Repeat("a", maxPart) {
		t.Errorf("%d bytes are left", len(got))
	}
	if got := files["just.txt"]; got != strings.Repeat("b", maxPart) || files["after.txt"] != "there" {
		t.Errorf("%d bytes are left, and %q", len(got), files["after.txt"])
	}
	if got := files["missing.txt"]; got != "large.txt: cut after 1048576 bytes\n" {
		t.Errorf("missing is %q", got)
	}
	twice, _ := bundled(t, BundlePart{"a.txt", func(_ context.Context, out io.Writer) error {
		for range 2 {
			if n, err := io.WriteString(out, strings.Repeat("a", maxPart-1)); err != nil {
				return fmt.Errorf("after %d bytes: %w", n, err)
			}
		}
		return nil
	}})
	if len(twice["a.txt"]) != maxPart || twice["missing.txt"] != "a.txt: after 1 bytes: cut after 1048576 bytes\n" {
		t.Errorf("in parts: %d bytes are left, %q", len(twice["a.txt"]), twice["missing.txt"])
	}
}

// TestNames leaves out a part whose name leads out of the archive, and quotes only
// plain names.
func TestNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "/etc/passwd", "../up", "pods/../../up", "pods//two", "a\x00b", "password=hunter2", strings.Repeat("x", maxPlain+1)} {
		files, order := bundled(t, part(name, "there", nil), part("after.txt", "there", nil))
		if diff := cmp.Diff([]string{"after.txt", "missing.txt"}, order); diff != "" {
			t.Errorf("%q: %s", name, diff)
		}
		if got := files["missing.txt"]; !strings.HasSuffix(got, ": the name is not a path in an archive\n") || strings.Contains(got, "hunter2") {
			t.Errorf("%q: missing is %q", name, got)
		}
	}
}

// TestTooMany leaves out parts beyond the limits, and names the limits.
func TestTooMany(t *testing.T) {
	t.Parallel()
	var many, large []BundlePart
	for i := range maxParts + 3 {
		many = append(many, part(fmt.Sprintf("pods/%d.txt", i), "there", nil))
	}
	for i := range maxTotal/maxPart + 2 {
		large = append(large, part(fmt.Sprintf("pods/%d.txt", i), strings.Repeat("x", maxPart), nil))
	}
	for _, tt := range []struct {
		parts []BundlePart
		kept  int
		fault string
	}{
		{many, maxParts, "3 parts are left out: a bundle ends after 1024 parts or 33554432 bytes\n"},
		{large, maxTotal / maxPart, "2 parts are left out: a bundle ends after 1024 parts or 33554432 bytes\n"},
	} {
		files, order := bundled(t, tt.parts...)
		if len(order) != tt.kept+1 || files["missing.txt"] != tt.fault {
			t.Errorf("%d files, missing is %q", len(order), files["missing.txt"])
		}
	}
}

// TestLongFault cuts a long error and writes it on one line.
func TestLongFault(t *testing.T) {
	t.Parallel()
	files, _ := bundled(t, part("a.txt", "", errors.New("one\n"+strings.Repeat("x", 2*maxFault))))
	if got := files["missing.txt"]; strings.Count(got, "\n") != 1 || len(got) > maxFault+100 || !strings.HasSuffix(got, "… (cut after 1024 bytes)\n") {
		t.Errorf("missing is %q", got)
	}
	just := strings.Repeat("x", maxFault)
	if files, _ := bundled(t, part("a.txt", "", errors.New(just))); files["missing.txt"] != "a.txt: "+just+"\n" {
		t.Errorf("just of the limit: missing is %q", files["missing.txt"])
	}
}

func TestPlain(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "containerd", "1.6.20~ds1", "v2.0.0-rc.1+build", "/opt/cni/bin", "127.0.0.1:15015", "[/a,/b]", "go1.26", strings.Repeat("a", maxPlain)} {
		if Plain(text) != text {
			t.Errorf("%q is not shown", text)
		}
	}
	for _, text := range []string{`password = "x"`, "a=b", "a\nb", "ü", "\x00", "{}", strings.Repeat("a", maxPlain+1)} {
		if Plain(text) == text {
			t.Errorf("%q is shown", text)
		}
	}
}

// TestHanging stops a part at its timeout, and writes all others.
func TestHanging(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		hangs := BundlePart{"hangs.txt", func(ctx context.Context, out io.Writer) error {
			_, err := io.WriteString(out, "so far")
			<-ctx.Done()
			return errors.Join(err, ctx.Err())
		}}
		files, _ := bundled(t, part("before.txt", "there", nil), hangs, BundlePart{"after.txt", func(ctx context.Context, out io.Writer) error {
			_, err := io.WriteString(out, "there")
			return errors.Join(err, ctx.Err())
		}})
		if diff := cmp.Diff(map[string]string{
			"before.txt": "there", "hangs.txt": "so far", "after.txt": "there", "missing.txt": "hangs.txt: context deadline exceeded\n",
		}, files); diff != "" {
			t.Error(diff)
		}
		if took := time.Since(began); took != partTimeout {
			t.Errorf("took %s, want %s", took, partTimeout)
		}
	})
}

// fullDisk accepts some bytes and no more.
type fullDisk struct{ free int }

var errFull = errors.New("no space left")

func (f *fullDisk) Write(p []byte) (int, error) {
	if len(p) > f.free {
		return 0, errFull
	}
	f.free -= len(p)
	return len(p), nil
}

// TestDiskFull returns the error of every write.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	parts := []BundlePart{part("about.txt", "version 1\n", nil)}
	var whole bytes.Buffer
	if err := WriteBundle(t.Context(), &whole, moment, parts); err != nil {
		t.Fatal(err)
	}
	for free := range whole.Len() {
		if err := WriteBundle(t.Context(), &fullDisk{free}, moment, parts); !errors.Is(err, errFull) {
			t.Fatalf("with %d of %d bytes free: %v", free, whole.Len(), err)
		}
	}
}
