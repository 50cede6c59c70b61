// SPDX-License-Identifier: Apache-2.0

package bundle

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

// bundled writes parts and reads the archive back: the files by name, and
// their names in order.
func bundled(t *testing.T, parts ...Part) (files map[string]string, order []string) {
	t.Helper()
	var out bytes.Buffer
	if err := Write(t.Context(), &out, moment, parts); err != nil {
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
	if !bytes.HasSuffix(tarred, make([]byte, 1024)) { // tar(5); programs complain without
		t.Error("the archive has no end")
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
			t.Errorf("the archive has %+v", head)
		}
		files[name], order = string(content), append(order, name)
	}
	return files, order
}

// says is a part that writes something, and then ends with an error or nil.
func says(name, text string, err error) Part {
	return Part{name, func(_ context.Context, out io.Writer) error {
		_, writeErr := io.WriteString(out, text)
		return errors.Join(writeErr, err)
	}}
}

func TestBundle(t *testing.T) {
	t.Parallel()
	files, order := bundled(t, says("about.txt", "version 1\n", nil), says("lists/05-cilium.conflist", `{"name":"cilium"}`, nil), says("pods/a.txt", "captured\n", nil))
	if diff := cmp.Diff(map[string]string{
		"about.txt": "version 1\n", "lists/05-cilium.conflist": `{"name":"cilium"}`, "pods/a.txt": "captured\n", "missing.txt": "",
	}, files); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"about.txt", "lists/05-cilium.conflist", "pods/a.txt", "missing.txt"}, order); diff != "" {
		t.Error(diff)
	}
	if files, _ := bundled(t); len(files) != 1 || files["missing.txt"] != "" {
		t.Errorf("nothing is %q", files)
	}
}

// TestMissing names what can't be had, or only in part, and keeps all else.
func TestMissing(t *testing.T) {
	t.Parallel()
	files, _ := bundled(
		t, says("first.txt", "there", nil), says("none.txt", "", errors.New("it is not there")), says("half.txt", "one of two", errors.New("it broke off")),
		says("empty.txt", "", nil), says("last.txt", "there too", nil),
	)
	if diff := cmp.Diff(map[string]string{
		"first.txt": "there", "half.txt": "one of two", "last.txt": "there too",
		"missing.txt": "none.txt: it is not there\nhalf.txt: it broke off\n",
	}, files); diff != "" {
		t.Error(diff)
	}
}

// TestTooLarge cuts what nobody could send, and says so.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	files, _ := bundled(
		t, says("large.txt", strings.Repeat("a", maxPart+1), nil), says("just.txt", strings.Repeat("b", maxPart), nil), says("after.txt", "there", nil),
	)
	if got := files["large.txt"]; got != strings.Repeat("a", maxPart) {
		t.Errorf("%d bytes are left", len(got))
	}
	if got := files["just.txt"]; got != strings.Repeat("b", maxPart) || files["after.txt"] != "there" {
		t.Errorf("%d bytes are left, and %q", len(got), files["after.txt"])
	}
	if got := files["missing.txt"]; !strings.HasPrefix(got, "large.txt: cut after ") || strings.Count(got, "\n") != 1 {
		t.Errorf("missing is %q", got)
	}
}

// TestNames leaves out a part whose name leads out of the archive, and quotes no
// name that has not a name's form.
func TestNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "/etc/passwd", "../up", "pods/../../up", "pods//two", "a\x00b", "password=hunter2", strings.Repeat("x", maxPlain+1)} {
		files, order := bundled(t, says(name, "there", nil), says("after.txt", "there", nil))
		if diff := cmp.Diff([]string{"after.txt", "missing.txt"}, order); diff != "" {
			t.Errorf("%q: %s", name, diff)
		}
		if got := files["missing.txt"]; !strings.HasSuffix(got, ": its name is no path within an archive\n") || strings.Contains(got, "hunter2") {
			t.Errorf("%q: missing is %q", name, got)
		}
	}
}

// TestTooMany leaves out parts beyond the limits, and says which limits.
func TestTooMany(t *testing.T) {
	t.Parallel()
	var many, large []Part
	for i := range maxParts + 3 {
		many = append(many, says(fmt.Sprintf("pods/%d.txt", i), "there", nil))
	}
	for i := range maxTotal/maxPart + 2 {
		large = append(large, says(fmt.Sprintf("pods/%d.txt", i), strings.Repeat("x", maxPart), nil))
	}
	for _, tt := range []struct {
		parts []Part
		kept  int
		says  string
	}{
		{many, maxParts, "3 parts are left out: a bundle has at most 1024 parts and 33554432 bytes\n"},
		{large, maxTotal / maxPart, "2 parts are left out: a bundle has at most 1024 parts and 33554432 bytes\n"},
	} {
		files, order := bundled(t, tt.parts...)
		if len(order) != tt.kept+1 || files["missing.txt"] != tt.says {
			t.Errorf("%d files, missing is %q", len(order), files["missing.txt"])
		}
	}
}

// TestLongFault cuts an error, to one line, and names the limit.
func TestLongFault(t *testing.T) {
	t.Parallel()
	files, _ := bundled(t, says("a.txt", "", errors.New("one\n"+strings.Repeat("x", 2*maxFault))))
	if got := files["missing.txt"]; strings.Count(got, "\n") != 1 || len(got) > maxFault+100 || !strings.HasSuffix(got, "… (cut after 1024 bytes)\n") {
		t.Errorf("missing is %q", got)
	}
}

func TestPlain(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "containerd", "1.6.20~ds1", "v2.0.0-rc.1+build", "/opt/cni/bin", "127.0.0.1:15015", "[/a,/b]", "go1.26"} {
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

// TestHanging gives up on a part after its time, and on no other.
func TestHanging(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		hangs := Part{"hangs.txt", func(ctx context.Context, out io.Writer) error {
			_, err := io.WriteString(out, "so far")
			<-ctx.Done()
			return errors.Join(err, ctx.Err())
		}}
		files, _ := bundled(t, says("before.txt", "there", nil), hangs, Part{"after.txt", func(ctx context.Context, out io.Writer) error {
			_, err := io.WriteString(out, "there")
			return errors.Join(err, ctx.Err())
		}})
		if diff := cmp.Diff(map[string]string{
			"before.txt": "there", "hangs.txt": "so far", "after.txt": "there", "missing.txt": "hangs.txt: context deadline exceeded\n",
		}, files); diff != "" {
			t.Error(diff)
		}
		if took := time.Since(began); took != partTimeout {
			t.Errorf("it took %s", took)
		}
	})
}

// full is a disk that takes some bytes and no more.
type full struct{ room int }

var errFull = errors.New("no space left")

func (f *full) Write(p []byte) (int, error) {
	if len(p) > f.room {
		return 0, errFull
	}
	f.room -= len(p)
	return len(p), nil
}

// TestNowhereToWrite says so, however far it got.
func TestNowhereToWrite(t *testing.T) {
	t.Parallel()
	parts := []Part{says("about.txt", "version 1\n", nil)}
	var whole bytes.Buffer
	if err := Write(t.Context(), &whole, moment, parts); err != nil {
		t.Fatal(err)
	}
	for room := range whole.Len() {
		if err := Write(t.Context(), &full{room}, moment, parts); !errors.Is(err, errFull) {
			t.Fatalf("with room for %d of %d bytes: %v", room, whole.Len(), err)
		}
	}
}
