// SPDX-License-Identifier: Apache-2.0

package record

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
)

// memory is a folder that remembers some records, told in their order.
func memory(t *testing.T, records ...Record) string {
	t.Helper()
	dir := ring(t)
	for _, r := range records {
		if err := remember(dir, r); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// remember has a history of its own, as a new agent has.
func remember(dir string, r Record) error {
	h, err := OpenHistory(dir)
	if err != nil {
		return err
	}
	return h.Record(r)
}

// add is a record of a pod's ADD that began at a second.
func add(uid string, second int, message string) Record {
	return record(func(r *Record) { r.Pod.UID, r.Time, r.Message = uid, time.Unix(int64(second), 0).UTC(), message })
}

func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// recallAll gives the messages of all that is remembered.
func recallAll(t *testing.T, dir string) (messages []string) {
	t.Helper()
	records, err := RecallAll(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		messages = append(messages, r.Message)
	}
	return messages
}

// TestRemember keeps one record of each pod, the one that was told last.
func TestRemember(t *testing.T) {
	t.Parallel()
	dir := memory(
		t, add("6c1f", 1, "first"), add("9d53", 2, "another pod's"), add("6c1f", 3, "second"), add("6c1f", 4, "third"),
		add("c1f", 5, "of a shorter name"), add("a-6c1f", 6, "of a longer name"),
	)
	if diff := cmp.Diff([]string{"another pod's", "third", "of a shorter name", "of a longer name"}, recallAll(t, dir)); diff != "" {
		t.Error(diff)
	}
	for uid, want := range map[string]Record{
		"6c1f": add("6c1f", 4, "third"), "9d53": add("9d53", 2, "another pod's"), "a-6c1f": add("a-6c1f", 6, "of a longer name"),
	} {
		got, err := Recall(dir, uid)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", uid, err, diff)
		}
	}
	youngest := add("9d53", 9, "of two, which two who remember at once may leave")
	if err := os.WriteFile(filepath.Join(dir, nameOf(youngest, "9d53")+finished), encode(youngest), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Recall(dir, "9d53"); err != nil || got.Message != youngest.Message {
		t.Errorf("recalled %v, %v", got, err)
	}
	for _, uid := range []string{"", "none", "6c1", "1f", "6c1f.json", "*", "../6c1f"} {
		if r, err := Recall(dir, uid); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q is recalled as %v, %v", uid, r, err)
		}
	}
	for _, name := range files(t, dir) {
		if info, err := os.Lstat(filepath.Join(dir, name)); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: mode %s, %v", name, info.Mode(), err)
		}
	}
}

// TestRememberKeepsTheYounger where an older record comes late: what nobody took
// is replayed by the minute, behind what was taken meanwhile.
func TestRememberKeepsTheYounger(t *testing.T) {
	t.Parallel()
	dir := memory(t, add("6c1f", 9, "younger"), add("6c1f", 1, "older, replayed"))
	if diff := cmp.Diff([]string{"younger"}, recallAll(t, dir)); diff != "" {
		t.Error(diff)
	}
}

// TestMemoryIsBounded forgets the pods whose ADDs were the longest ago.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	dir := memory(t)
	const more = 10
	var want []string
	for i := range historySize + more {
		r := add(fmt.Sprint("uid", i), i, fmt.Sprint(i))
		var err error
		if i < historySize-1 { // in a short time
			err = os.WriteFile(filepath.Join(dir, nameOf(r, r.Pod.UID)+finished), encode(r), 0o600)
		} else {
			err = remember(dir, r)
		}
		if err != nil {
			t.Fatal(err)
		}
		if i >= more {
			want = append(want, fmt.Sprint(i))
		}
	}
	if diff := cmp.Diff(want, recallAll(t, dir)); diff != "" {
		t.Error(diff)
	}
	if _, err := Recall(dir, "uid0"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the oldest is still there: %v", err)
	}
}

// TestNoNameForAFile writes nothing of a pod whose UID names no file.
func TestNoNameForAFile(t *testing.T) {
	t.Parallel()
	dir := memory(t, add("6c1f", 1, "kept"))
	beside := files(t, filepath.Dir(dir))
	for _, uid := range []string{"", "/", "../6c1f", "6c1f/", "/../6c1f", "a/b", "6c1f\x00"} {
		if err := remember(dir, add(uid, 2, "written")); (err == nil) != (uid == "") {
			t.Errorf("%q: %v", uid, err)
		}
	}
	if diff := cmp.Diff([]string{"kept"}, recallAll(t, dir)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(beside, files(t, filepath.Dir(dir))); diff != "" {
		t.Errorf("beside the folder: %s", diff)
	}
	if err := remember(dir, add(strings.Repeat("x", 300), 2, "written")); err == nil {
		t.Error("a name too long for a file is no error")
	}
	if diff := cmp.Diff([]string{"kept"}, recallAll(t, dir)); diff != "" {
		t.Error(diff)
	}
}

// TestMemoryIsRootsOwn writes nowhere else, and reads nothing else.
func TestMemoryIsRootsOwn(t *testing.T) {
	t.Parallel()
	open, linked := ring(t), memory(t, add("6c1f", 1, "kept"))
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
		err := remember(tt.dir, add("9d53", 2, "written"))
		r, recallErr := Recall(tt.dir, "6c1f")
		all, allErr := RecallAll(tt.dir)
		for _, err := range []error{err, recallErr, allErr} {
			if err == nil || errors.Is(err, fs.ErrNotExist) != tt.missing {
				t.Errorf("%s: %v", name, err)
			}
		}
		if r.Message != "" || len(all) > 0 {
			t.Errorf("%s: recalled %v, %v", name, r, all)
		}
	}
	if names := files(t, open); len(names) > 0 {
		t.Errorf("written where others can read: %q", names)
	}
	if diff := cmp.Diff([]string{"kept"}, recallAll(t, linked)); diff != "" {
		t.Errorf("written through a link: %s", diff)
	}
	if _, err := os.Lstat(none); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a folder was made: %v", err)
	}
}

// TestMemoryWithRubbish leaves out what can't be read, and follows no link.
func TestMemoryWithRubbish(t *testing.T) {
	t.Parallel()
	dir := memory(t, add("6c1f", 5, "good"))
	whole, err := os.ReadFile(filepath.Join(dir, files(t, dir)[0]))
	if err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(t.TempDir(), "outside")
	if err := errors.Join(os.WriteFile(outside, whole, 0o600), os.Symlink(outside, filepath.Join(dir, "1-linked.json")), os.Mkdir(filepath.Join(dir, "2-folder.json"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"3-half.json": whole[:len(whole)/2], "4-empty.json": nil, "5-long.json": append(whole, make([]byte, MaxSize)...),
		"6-newer.json": []byte(`{"version":2,"verdict":"captured"}`), "7-unfinished.json.part": whole, "8-other.txt": whole,
	} {
		if err := os.WriteFile(filepath.Join(dir, strings.Repeat("0", 19)+name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"good"}, recallAll(t, dir)); diff != "" {
		t.Error(diff)
	}
	for _, uid := range []string{"linked", "folder", "half", "empty", "long", "newer", "unfinished"} {
		if r, err := Recall(dir, uid); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is recalled as %v, %v", uid, r, err)
		}
	}
	if err := remember(dir, add("half", 6, "whole again")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"good", "whole again"}, recallAll(t, dir)); diff != "" {
		t.Error(diff)
	}
}

// TestRecallAllOfARing shows what the plugin kept, and leaves it to the agent.
func TestRecallAllOfARing(t *testing.T) {
	t.Parallel()
	dir := ring(t)
	want := []string{"1", "2", "3"}
	for i := range want {
		Keep(dir, numbered(i+1))
	}
	for range 2 {
		if diff := cmp.Diff(want, recallAll(t, dir)); diff != "" {
			t.Error(diff)
		}
	}
	if diff := cmp.Diff(want, replay(t, dir)); diff != "" {
		t.Error(diff)
	}
	if left := recallAll(t, dir); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
