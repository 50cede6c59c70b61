// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestEncode expects a document with every field, in which nothing is longer than its limit.
func TestEncode(t *testing.T) {
	t.Parallel()
	long := func(most int) string { return strings.Repeat("x", most) }
	many := slices.Repeat([]string{long(MaxWarning + 1)}, MaxWarnings+1)
	cut := slices.Repeat([]string{long(MaxWarning) + Ellipsis}, MaxWarnings)
	pod, longest, stages := capture.PodRef{Namespace: "ns", Name: "a", UID: "1-2"}, capture.PodRef{Namespace: long(MaxNamespace), Name: long(MaxName), UID: long(MaxUID)}, map[Stage]float64{Deciding: 1}
	for name, tt := range map[string]struct{ in, want Record }{
		"nothing": {Record{}, Record{Version: Version}},
		"all that fits": {
			Record{Version: 7, Pod: longest, Sandbox: long(MaxSandbox), Backend: long(MaxBackend), Message: long(MaxMessage), Warnings: many[:1], Stages: stages},
			Record{Version: Version, Pod: longest, Sandbox: long(MaxSandbox), Backend: long(MaxBackend), Message: long(MaxMessage), Warnings: cut[:1], Stages: stages},
		},
		"too long": {
			Record{Pod: pod, Sandbox: long(MaxSandbox + 1), Backend: long(MaxBackend + 1), Message: long(MaxMessage + 1), Warnings: many, Notes: many},
			Record{Version: Version, Pod: pod, Message: long(MaxMessage) + Ellipsis, Warnings: cut, Notes: cut},
		},
		"a long namespace":  {Record{Pod: capture.PodRef{Namespace: long(MaxNamespace + 1), Name: "a", UID: "1"}}, Record{Version: Version}},
		"a long name":       {Record{Pod: capture.PodRef{Namespace: "ns", Name: long(MaxName + 1), UID: "1"}}, Record{Version: Version}},
		"a long UID":        {Record{Pod: capture.PodRef{Namespace: "ns", Name: "a", UID: long(MaxUID + 1)}}, Record{Version: Version}},
		"other characters":  {Record{Pod: capture.PodRef{Namespace: "ns", Name: "a/b", UID: "1"}, Sandbox: "a b", Backend: "a\n"}, Record{Version: Version}},
		"a cut in a letter": {Record{Message: long(MaxMessage-1) + "ü"}, Record{Version: Version, Message: long(MaxMessage-1) + Ellipsis}},
	} {
		var got Record
		lab.Check(t, json.Unmarshal(Encode(tt.in), &got))
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if document := Encode(Record{Stages: map[Stage]float64{Stage(long(MaxSize)): 1}}); document != nil {
		t.Errorf("a document of %d bytes", len(document))
	}
	stamp := MaxSize - len(Encode(Record{Stamp: "x"})) + 1
	if just, more := Encode(Record{Stamp: long(stamp)}), Encode(Record{Stamp: long(stamp + 1)}); len(just) != MaxSize || more != nil {
		t.Errorf("documents of %d and %d bytes", len(just), len(more))
	}
	if err, want := CheckPod(capture.PodRef{Namespace: "ns", Name: "a b", UID: "1"}), `pod.name is "a b": expected at most 253 letters, digits, dots, dashes, underscores`; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
	if err := CheckName("x", long(MaxFault), 1); err == nil || !strings.Contains(err.Error(), `"`+long(MaxFault/4)+Ellipsis+`"`) {
		t.Errorf("got error %v", err)
	}
	var r Record
	r.AddDuration(Deciding, time.Second)
	r.AddDuration(Deciding, time.Second/2)
	if r.Stages[Deciding] != 1.5 || pod.String() != "ns/a" || capture.ExemptReason("why") != "exempt_why" {
		t.Errorf("stages %v, pod %s", r.Stages, pod)
	}
}

// private returns a directory that only its owner can enter.
func private(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "d")
	lab.Check(t, os.Mkdir(path, 0o700))
	return path
}

// TestDir writes, lists, prunes and removes records.
func TestDir(t *testing.T) {
	t.Parallel()
	path := private(t)
	d, err := OpenDir(path)
	lab.Check(t, err)
	at := func(n int) Record { return Record{Time: time.Unix(0, int64(n)), Message: strings.Repeat("x", 100)} }
	for _, n := range []int{-5, 3, 1, 2} {
		lab.Check(t, d.Write("key", at(n)))
	}
	lab.Check(t, errors.Join(os.Mkdir(path+"/sub", 0o700), os.Symlink("sub", path+"/link")))
	names := func() (all []string) {
		for _, file := range d.Files() {
			if file.Size < 100 || file.Size > 300 {
				t.Errorf("%s has %d bytes", file.Name, file.Size)
			}
			all = append(all, strings.TrimLeft(strings.TrimSuffix(file.Name, "-key"+Finished), "0"))
		}
		return all
	}
	for _, tt := range []struct {
		most  int
		bytes int64
		want  []string
	}{
		{4, 1 << 20, []string{"", "1", "2", "3"}},
		{3, 1 << 20, []string{"1", "2", "3"}},
		{9, 3 * d.Files()[1].Size, []string{"1", "2", "3"}},
		{9, 3*d.Files()[1].Size - 1, []string{"2", "3"}},
		{9, 1, []string{"3"}},
		{0, 1, nil},
	} {
		if d.Prune(tt.most, tt.bytes); !slices.Equal(names(), tt.want) {
			t.Errorf("%d of %d bytes: left %q, want %q", tt.most, tt.bytes, names(), tt.want)
		}
	}
	if info, err := os.ReadDir(path); err != nil || len(info) != 2 {
		t.Errorf("left %v, %v", info, err)
	}
	if err, want := d.Write("a/b", at(1)), "a file's key is"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got error %v", err)
	}
	if err := d.Write("key", Record{Stamp: strings.Repeat("x", MaxSize)}); err == nil || err.Error() != "writing a record: larger than 65536 bytes" {
		t.Errorf("got error %v", err)
	}
	name := FileName(at(7), "key")
	lab.Check(t, os.MkdirAll(path+"/"+name+"/sub", 0o700))
	if err := d.Write("key", at(7)); err == nil || !strings.HasPrefix(err.Error(), "writing a record: ") {
		t.Errorf("got error %v", err)
	}
	if _, err := os.Lstat(path + "/" + name + Unfinished); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an unfinished record is left: %v", err)
	}
	if err := d.Remove(File{Name: name}); err == nil || !strings.HasPrefix(err.Error(), "deleting a record: ") {
		t.Errorf("got error %v", err)
	}
	lab.Check(t, errors.Join(d.Remove(File{Name: "none"}), d.Write("mode", at(8))))
	if info, err := os.Stat(path + "/" + FileName(at(8), "mode")); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if lab.Check(t, d.Close()); d.Files() != nil {
		t.Error("a closed directory has files")
	}
}

// TestOpenPrivate refuses what another user could have made or can read.
func TestOpenPrivate(t *testing.T) {
	path := private(t)
	lab.Check(t, errors.Join(
		os.Symlink(path, path+"/link"), os.Mkdir(path+"/open", 0o700), os.Chmod(path+"/open", 0o755), os.WriteFile(path+"/file", nil, 0o600),
	))
	for name, want := range map[string]string{
		"": "<nil>", "/none": "opening a private directory: lstat DIR/none: no such file or directory",
		"/link": "opening a private directory: DIR/link must be a directory owned by root, mode 0700",
		"/open": "opening a private directory: DIR/open must be a directory owned by root, mode 0700",
		"/file": "opening a private directory: DIR/file must be a directory owned by root, mode 0700",
	} {
		d, err := OpenDir(path + name)
		if got := strings.ReplaceAll(fmt.Sprint(err), path, "DIR"); got != want {
			t.Errorf("%s: got error %s, want %s", name, got, want)
		}
		if err == nil {
			lab.Check(t, d.Close())
		}
	}
	root, err := OpenPrivate(path+"/open", 0o755)
	lab.Check(t, errors.Join(err, root.Close()))
	lab.WithoutDescriptors(t, func() {
		if _, err := OpenDir(path); err == nil || !strings.HasSuffix(err.Error(), "too many open files") {
			t.Errorf("got error %v", err)
		}
	})
}

// TestSend sends to a socket of the process's own user, and to nothing else.
func TestSend(t *testing.T) {
	dir, err := os.MkdirTemp("", "record") // a socket's path is short
	lab.Check(t, err)
	defer os.RemoveAll(dir)
	receive := func(name string, mode os.FileMode) *net.UnixConn {
		conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: dir + "/" + name, Net: "unixgram"})
		lab.Check(t, errors.Join(err, os.Chmod(dir+"/"+name, mode)))
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	ours, _ := receive("ours", 0o600), receive("open", 0o666)
	lab.Check(t, errors.Join(os.Symlink("ours", dir+"/link"), os.WriteFile(dir+"/file", nil, 0o600)))
	r := Record{Sandbox: "one"}
	open, err := os.ReadDir("/proc/self/fd")
	lab.Check(t, err)
	for name, want := range map[string]bool{"ours": true, "open": false, "link": false, "file": false, "none": false} {
		if got := Send(dir+"/"+name, r); got != want {
			t.Errorf("%s: taken %t", name, got)
		}
	}
	buffer := make([]byte, MaxSize)
	if n, err := ours.Read(buffer); err != nil || !bytes.Equal(buffer[:n], Encode(r)) {
		t.Errorf("got %s, %v", buffer[:n], err)
	}
	if Send(dir+"/ours", Record{Stamp: strings.Repeat("x", MaxSize)}) {
		t.Error("a record that is too large was taken")
	}
	lab.WithoutDescriptors(t, func() {
		if Send(dir+"/ours", r) {
			t.Error("a record was taken without a socket")
		}
	})
	sent := 0 // no reader takes them, and the sender does not wait
	for Send(dir+"/ours", r) {
		sent++
	}
	if after, err := os.ReadDir("/proc/self/fd"); err != nil || len(after) > len(open) || sent == 0 {
		t.Errorf("%d descriptors are open, before it were %d; %d were sent; %v", len(after), len(open), sent, err)
	}
}

// TestKeep keeps the latest records of a spool, which it does not make.
func TestKeep(t *testing.T) {
	path := private(t)
	if got := Spool("/run/x/agent.sock"); got != "/run/x/failures" {
		t.Errorf("spool %s", got)
	}
	Keep(path+"/none", Record{})
	if _, err := os.Stat(path + "/none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a spool was made: %v", err)
	}
	open, err := os.ReadDir("/proc/self/fd")
	lab.Check(t, err)
	for n := range SpoolSize + 2 {
		Keep(path, Record{Time: time.Unix(0, int64(n))})
	}
	d, err := OpenDir(path)
	lab.Check(t, err)
	if files := d.Files(); len(files) != SpoolSize || !strings.HasPrefix(files[0].Name, "00000000000000000002-") {
		t.Errorf("%d files, %v", len(files), files[:1])
	}
	lab.Check(t, d.Close())
	for n := range 20 { // some 60 KiB each
		Keep(path, Record{Time: time.Unix(1, int64(n)), Stamp: strings.Repeat("x", MaxSize-1000)})
	}
	d, err = OpenDir(path)
	lab.Check(t, err)
	if files := d.Files(); len(files) != 16 {
		t.Errorf("%d large files", len(files))
	}
	Keep(path, Record{Stamp: strings.Repeat("x", MaxSize)}) // can't be written
	lab.Check(t, d.Close())
	if after, err := os.ReadDir("/proc/self/fd"); err != nil || len(after) > len(open) {
		t.Errorf("%d descriptors are open, before it were %d; %v", len(after), len(open), err)
	}
}
