// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// recordedADD is a directory with some records, written in their order.
func recordedADD(t *testing.T, records ...record.Record) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "adds")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		if err := KeepRecord(dir, r, false); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// add is a record of a pod's ADD that began at a second.
func add(uid string, second int, message string) record.Record {
	return record.Record{
		Version: record.Version, Time: time.Unix(int64(second), 0).UTC(), Pod: capture.PodRef{Namespace: "shop", Name: "web", UID: uid},
		Sandbox: "4ed1", Verdict: record.Failed, Reason: capture.ReasonLookup, Code: 11, Message: message,
	}
}

// writeRecord writes the file of a record, whatever else is there.
func writeRecord(t *testing.T, dir string, r record.Record) {
	t.Helper()
	d, err := record.OpenDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Write(r.Pod.UID, r); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestRecord keeps one record of each pod, the one that was sent last.
func TestRecord(t *testing.T) {
	t.Parallel()
	dir := recordedADD(
		t, add("6c1f", 1, "first"), add("9d53", 2, "another pod's"), add("6c1f", 3, "second"), add("6c1f", 4, "third"),
		add("c1f", 5, "of a shorter name"), add("a-6c1f", 6, "of a longer name"),
	)
	if diff := cmp.Diff([]string{"another pod's", "third", "of a shorter name", "of a longer name"}, messages(t, dir)); diff != "" {
		t.Error(diff)
	}
	for uid, want := range map[string]record.Record{
		"6c1f": add("6c1f", 4, "third"), "9d53": add("9d53", 2, "another pod's"), "a-6c1f": add("a-6c1f", 6, "of a longer name"),
	} {
		got, err := LastRecord(dir, uid)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", uid, err, diff)
		}
	}
	youngest := add("9d53", 9, "of two, which two agents may leave")
	writeRecord(t, dir, youngest)
	if got, err := LastRecord(dir, "9d53"); err != nil || got.Message != youngest.Message {
		t.Errorf("read %v, %v", got, err)
	}
	for _, uid := range []string{"", "none", "6c1", "1f", "6c1f.json", "*", "../6c1f"} {
		if r, err := LastRecord(dir, uid); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q is read as %v, %v", uid, r, err)
		}
	}
	for _, name := range lab.FileNames(t, dir) {
		if info, err := os.Lstat(filepath.Join(dir, name)); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: mode %s, %v", name, info.Mode(), err)
		}
	}
}

// TestSpooledRecords writes an older record last: the spool is replayed each minute,
// after records that arrived in the meantime.
func TestSpooledRecords(t *testing.T) {
	t.Parallel()
	dir := recordedADD(t, add("6c1f", 9, "younger"))
	for _, tt := range []struct {
		second int
		want   string
	}{{1, "younger"}, {10, "spooled"}} {
		if err := KeepRecord(dir, add("6c1f", tt.second, "spooled"), true); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{tt.want}, messages(t, dir)); diff != "" {
			t.Error(diff)
		}
	}
}

// TestClockSetBack records an ADD whose time is before that of the pod's last one: it is
// the pod's last one from then on.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	dir := recordedADD(t, add("9d53", 7200, "another pod's"), add("6c1f", 7201, "before"), add("6c1f", 1, "after"))
	if got, err := LastRecord(dir, "6c1f"); err != nil || got.Message != "after" {
		t.Errorf("the last ADD is %q, %v", got.Message, err)
	}
	if diff := cmp.Diff([]string{"after", "another pod's"}, messages(t, dir)); diff != "" {
		t.Error(diff)
	}
}

// TestIsBounded records after another agent that left too many pods, and then many more: the
// pods whose ADDs were the longest ago are forgotten.
func TestIsBounded(t *testing.T) {
	t.Parallel()
	const more = 10
	dir := recordedADD(t)
	var want []string
	for i := range maxPods + more {
		writeRecord(t, dir, add(fmt.Sprint("uid", i), i, fmt.Sprint(i)))
		want = append(want, fmt.Sprint(i))
	}
	if err := KeepRecord(dir, add(fmt.Sprint("uid", maxPods+more-1), maxPods+more, "younger"), false); err != nil {
		t.Fatal(err)
	}
	want[len(want)-1] = "younger"
	if diff := cmp.Diff(want[more:], messages(t, dir)); diff != "" {
		t.Error(diff)
	}
	if _, err := LastRecord(dir, "uid0"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the oldest is still there: %v", err)
	}
	for i := range 20 {
		if err := KeepRecord(dir, add(fmt.Sprint("flood", i%10), maxPods+more+1+i, ""), false); err != nil {
			t.Fatal(err)
		}
		if files := len(lab.FileNames(t, dir)); files > maxPods {
			t.Fatalf("after %d: %d files", i, files)
		}
	}
	if got := messages(t, dir); len(got) != maxPods || got[0] != fmt.Sprint(more+10) {
		t.Errorf("%d records from %q are left", len(got), got[0])
	}
}

// TestNoNameForAFile writes nothing of a pod whose UID names no file.
func TestNoNameForAFile(t *testing.T) {
	t.Parallel()
	dir := recordedADD(t, add("6c1f", 1, "kept"))
	beside := lab.FileNames(t, filepath.Dir(dir))
	for _, uid := range []string{"", "/", "../6c1f", "6c1f/", "/../6c1f", "a/b", "6c1f\x00"} {
		if err := KeepRecord(dir, add(uid, 2, "written"), false); (err == nil) != (uid == "") {
			t.Errorf("%q: %v", uid, err)
		}
	}
	if diff := cmp.Diff([]string{"kept"}, messages(t, dir)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(beside, lab.FileNames(t, filepath.Dir(dir))); diff != "" {
		t.Errorf("next to the directory: %s", diff)
	}
	if err := KeepRecord(dir, add(strings.Repeat("x", 300), 2, "written"), false); err == nil {
		t.Error("a name too long for a file is no error")
	}
	if diff := cmp.Diff([]string{"kept"}, messages(t, dir)); diff != "" {
		t.Error(diff)
	}
}

// TestIsRootsOwn writes nowhere else, and reads nothing else.
func TestIsRootsOwn(t *testing.T) {
	t.Parallel()
	open, linked := recordedADD(t), recordedADD(t, add("6c1f", 1, "kept"))
	if err := os.Chmod(open, 0o750); err != nil {
		t.Fatal(err)
	}
	link, none := filepath.Join(t.TempDir(), "adds"), filepath.Join(t.TempDir(), "adds")
	if err := os.Symlink(linked, link); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		dir     string
		missing bool
	}{"others can read it": {open, false}, "a link": {link, false}, "a device": {"/dev/null", false}, "not there": {none, true}} {
		err := KeepRecord(tt.dir, add("9d53", 2, "written"), false)
		r, lastErr := LastRecord(tt.dir, "6c1f")
		all, allErr := ReadAll(tt.dir)
		for _, err := range []error{err, lastErr, allErr} {
			if err == nil || errors.Is(err, fs.ErrNotExist) != tt.missing {
				t.Errorf("%s: %v", name, err)
			}
		}
		if r.Message != "" || len(all) > 0 {
			t.Errorf("%s: read %v, %v", name, r, all)
		}
	}
	if names := lab.FileNames(t, open); len(names) > 0 {
		t.Errorf("written where others can read: %q", names)
	}
	if diff := cmp.Diff([]string{"kept"}, messages(t, linked)); diff != "" {
		t.Errorf("written through a link: %s", diff)
	}
	if _, err := os.Lstat(none); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory was made: %v", err)
	}
}

// TestRubbish leaves out what can't be read, and follows no link.
func TestRubbish(t *testing.T) {
	t.Parallel()
	dir := recordedADD(t, add("6c1f", 5, "good"))
	whole, err := os.ReadFile(filepath.Join(dir, lab.FileNames(t, dir)[0]))
	if err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "outside")
	if err := errors.Join(os.WriteFile(outside, whole, 0o600), os.Symlink(outside, filepath.Join(dir, "1-linked.json")), os.Mkdir(filepath.Join(dir, "2-directory.json"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"3-half.json": whole[:len(whole)/2], "4-empty.json": nil, "5-long.json": append(whole, make([]byte, record.MaxSize)...),
		"6-newer.json": []byte(`{"version":2,"verdict":"captured"}`), "7-unfinished.json.part": whole, "8-other.txt": whole,
	} {
		if err := os.WriteFile(filepath.Join(dir, strings.Repeat("0", 19)+name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"good"}, messages(t, dir)); diff != "" {
		t.Error(diff)
	}
	for _, uid := range []string{"linked", "directory", "half", "empty", "long", "newer", "unfinished", "unfinished.json.part", "other.txt"} {
		if r, err := LastRecord(dir, uid); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is read as %v, %v", uid, r, err)
		}
	}
	if err := KeepRecord(dir, add("half", 6, "whole again"), false); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"good", "whole again"}, messages(t, dir)); diff != "" {
		t.Error(diff)
	}
}

// TestLimitOfBytes drops the oldest pods where records are large.
func TestLimitOfBytes(t *testing.T) {
	t.Parallel()
	dir := recordedADD(t)
	for i := range 5 {
		if err := os.WriteFile(filepath.Join(dir, record.FileName(add("", i, ""), fmt.Sprint("large", i))), make([]byte, maxBytes/4), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := KeepRecord(dir, add("6c1f", 9, "youngest"), false); err != nil {
		t.Fatal(err)
	}
	if left := lab.FileNames(t, dir); len(left) != 4 || !strings.HasSuffix(left[3], "-6c1f.json") {
		t.Errorf("left %q", left)
	}
}

// TestDescriptors expects each call to close what it opens. It runs next to no other test.
func TestDescriptors(t *testing.T) { //nolint:paralleltest // it counts the whole process's files
	dir := recordedADD(t)
	before := len(lab.FileNames(t, "/proc/self/fd"))
	for i := range 20 {
		_, err := LastRecord(dir, "6c1f")
		if recordErr := KeepRecord(dir, add("6c1f", i, ""), false); recordErr != nil || err != nil && i > 0 {
			t.Fatal(recordErr, err)
		}
	}
	if after := len(lab.FileNames(t, "/proc/self/fd")); after > before+5 {
		t.Errorf("%d files are open, %d before", after, before)
	}
}

// TestNoTime keeps a record that has no time as the oldest, under a name like
// any other.
func TestNoTime(t *testing.T) {
	t.Parallel()
	withoutTime := add("6c1f", 0, "no answer")
	withoutTime.Time = time.Time{}
	dir := recordedADD(t, withoutTime)
	if r, err := LastRecord(dir, "6c1f"); err != nil || r.Message != "no answer" {
		t.Errorf("read %+v, %v", r, err)
	}
}
