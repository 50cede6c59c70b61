// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

func recorded(change ...func(*record.Record)) record.Record {
	r := record.Record{
		Version: record.Version, Time: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
		Pod: capture.PodRef{Namespace: "shop", Name: "web", UID: "6c1f"}, Sandbox: "4ed1", Verdict: record.Failed, Reason: capture.ReasonLookup, Code: 11, Message: "no answer",
	}
	r.AddDuration(record.LookingUp, 2*time.Second)
	r.AddDuration(record.LookingUp, time.Second)
	for _, c := range change {
		c(&r)
	}
	return r
}

// reader listens as the agent does.
func reader(t *testing.T, mode os.FileMode) (*net.UnixConn, string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	conn := lab.AgentSocket(t, socket)
	if err := os.Chmod(socket, mode); err != nil {
		t.Fatal(err)
	}
	return conn, socket
}

func receive(t *testing.T, conn *net.UnixConn) record.Record {
	t.Helper()
	buffer := make([]byte, record.MaxSize+1)
	n, err := conn.Read(buffer)
	if err != nil {
		t.Fatal(err)
	}
	r, err := ParseRecord(buffer[:n])
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSend(t *testing.T) {
	t.Parallel()
	conn, socket := reader(t, 0o600)
	for _, want := range []record.Record{
		recorded(),
		recorded(func(r *record.Record) {
			r.Verdict, r.Reason, r.Backend, r.Warnings = record.Captured, "", "nftables", []string{"a"}
		}),
		recorded(func(r *record.Record) {
			*r = record.Record{Version: record.Version, Verdict: record.Passed, Reason: capture.ReasonNotKubernetes}
		}),
	} {
		if !record.Send(socket, want) {
			t.Fatal("no agent received it")
		}
		if diff := cmp.Diff(want, receive(t, conn)); diff != "" {
			t.Error(diff)
		}
	}
}

// TestNoAgent goes through what may be in the socket's place.
func TestNoAgent(t *testing.T) {
	t.Parallel()
	conn, gone := reader(t, 0o600)
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, others := reader(t, 0o666)
	_, socket := reader(t, 0o600)
	if err := os.Symlink(socket, link); err != nil {
		t.Fatal(err)
	}
	stream, err := net.Listen("unix", filepath.Join(dir, "stream"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stream.Close() })
	if err := os.Chmod(stream.Addr().String(), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{
		"nothing": filepath.Join(dir, "none"), "no directory": filepath.Join(dir, "none", "none"), "a directory": dir, "a file": file,
		"whose reader ended": gone, "of another kind": stream.Addr().String(), "that others can write to": others, "a link": link,
		"a path too long": filepath.Join(dir, strings.Repeat("x", 200)), "empty": "",
	} {
		if record.Send(path, recorded()) {
			t.Errorf("%s: it was taken", name)
		}
	}
}

// TestFull sends to an agent that does not read, and does not wait for it.
func TestFull(t *testing.T) {
	t.Parallel()
	conn, socket := reader(t, 0o600)
	full := make(chan int, 1)
	go func() {
		sent := 0
		for ; sent < 1<<20 && record.Send(socket, recorded()); sent++ {
		}
		full <- sent
	}()
	select {
	case sent := <-full:
		if sent == 0 || sent == 1<<20 {
			t.Fatalf("%d were taken by an agent that does not read", sent)
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits for an agent that does not read")
	}
	receive(t, conn)
	if !record.Send(socket, recorded()) {
		t.Error("the one after was not taken")
	}
}

// TestLong cuts long texts.
func TestLong(t *testing.T) {
	t.Parallel()
	conn, socket := reader(t, 0o600)
	long := strings.Repeat("ü\x00", 1<<20)
	if !record.Send(socket, recorded(func(r *record.Record) {
		r.Message = long
		for range 100 {
			r.Warnings = append(r.Warnings, long)
		}
	})) {
		t.Fatal("no agent received it")
	}
	got := receive(t, conn)
	if len(got.Message) < record.MaxMessage/2 || len(got.Message) > record.MaxMessage+3 || len(got.Warnings) != record.MaxWarnings || !strings.HasSuffix(got.Message, "…") {
		t.Errorf("a message of %d bytes, %d warnings", len(got.Message), len(got.Warnings))
	}
}

func TestReadIsStrict(t *testing.T) {
	t.Parallel()
	for document, wantVersion := range map[string]bool{
		"": false, "null": true, "[]": false, `{"version":"1"}`: false, `{"version":1}`: false,
		`{"version":2,"verdict":"unheard of","new":true}`: true, `{"verdict":"captured"}`: true,
		`{"version":1,"verdict":"captured","reason":"","more":1}`:     false,
		`{"version":1,"verdict":"captured","reason":"lookup"}`:        false,
		`{"version":1,"verdict":"failed","reason":"not injected"}`:    false,
		`{"version":1,"verdict":"failed"}`:                            false,
		`{"version":1,"verdict":"lost","reason":""}`:                  false,
		`{"version":1,"verdict":"repaired"}`:                          false,
		`{"version":1,"verdict":"repaired","reason":"foreign"}`:       false,
		`{"version":1,"verdict":"repaired","reason":"lookup"}`:        false,
		`{"version":1,"verdict":"found"}`:                             false,
		`{"version":1,"verdict":"found","reason":"captured"}`:         false,
		`{"version":1,"verdict":"found","reason":"not injected"}`:     false,
		`{"version":1,"verdict":"doomed"}`:                            false,
		`{"version":1,"verdict":"doomed","reason":"outdated"}`:        false,
		`{"version":1,"verdict":"doomed","reason":"foreign"}`:         false,
		`{"version":1,"verdict":"captured","stages":{"hesitate":1}}`:  false,
		`{"version":1,"verdict":"captured","stages":{"decide":"1s"}}`: false,
	} {
		if r, err := ParseRecord([]byte(document)); err == nil || errors.Is(err, errVersion) != wantVersion {
			t.Errorf("%s: read as %v, %v", document, r, err)
		}
	}
}

// TestReadVerdicts takes every verdict with its own reasons, and with no other.
func TestReadVerdicts(t *testing.T) {
	t.Parallel()
	ofAdd := []capture.Reason{capture.ReasonNotKubernetes, capture.ReasonNamespaceExcluded, capture.ReasonStaticPod, capture.ReasonNotInjected, capture.ExemptReason(capture.InitContainer), capture.ExemptReason(capture.NamespaceExcluded), capture.ReasonInput, capture.ReasonConfiguration, capture.ReasonLookup, capture.ReasonAnnotations, capture.ReasonRefused, capture.ReasonGone, capture.ReasonKernel}
	ofGuard := []capture.Reason{Uncaptured, Drifted, Outdated, Changed, Foreign, Obstructed, InjectedLater}
	for verdict, own := range map[record.Verdict][]capture.Reason{
		record.Captured: {""}, record.Passed: ofAdd[:6], record.Failed: ofAdd[6:], Repaired: ofGuard[:2], EvictionRequested: ofGuard[:2], Found: ofGuard, "": nil, "unheard of": nil,
	} {
		for _, reason := range slices.Concat([]capture.Reason{"", "unheard of"}, ofAdd, ofGuard) {
			document := fmt.Appendf(nil, `{"version":1,"verdict":%q,"reason":%q}`, verdict, reason)
			r, err := ParseRecord(document)
			if ok := err == nil && r.Verdict == verdict && r.Reason == reason; ok != slices.Contains(own, reason) {
				t.Errorf("%s: read as %v, %v", document, r, err)
			}
		}
	}
}

func spool(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "failures")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func numbered(i int) record.Record {
	return recorded(func(r *record.Record) { r.Time, r.Message = time.Unix(int64(i), 0), fmt.Sprint(i) })
}

// replay returns the messages of what was kept.
func replay(t *testing.T, dir string) (messages []string) {
	t.Helper()
	if err := ReplaySpool(dir, func(document []byte) {
		r, err := ParseRecord(document)
		if err != nil {
			t.Error(err)
		}
		messages = append(messages, r.Message)
	}); err != nil {
		t.Fatal(err)
	}
	return messages
}

// TestSpool keeps the youngest, returns them in order, and only once.
func TestSpool(t *testing.T) {
	t.Parallel()
	dir := spool(t)
	var want []string
	for i := range record.SpoolSize + 10 {
		record.Keep(dir, numbered(i))
		if i >= 10 {
			want = append(want, fmt.Sprint(i))
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if info, err := entry.Info(); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: mode %s, %v", entry.Name(), info.Mode(), err)
		}
	}
	if diff := cmp.Diff(want, replay(t, dir)); diff != "" {
		t.Error(diff)
	}
	if again := replay(t, dir); len(again) > 0 {
		t.Errorf("given again: %q", again)
	}
}

// TestSpoolOfMany has many write at once, with one who reads.
func TestSpoolOfMany(t *testing.T) {
	t.Parallel()
	dir := spool(t)
	var wait sync.WaitGroup
	for writer := range 8 {
		wait.Go(func() {
			for i := range 40 {
				record.Keep(dir, numbered(writer*1000+i))
			}
		})
	}
	seen := map[string]bool{}
	for range 5 {
		for _, message := range replay(t, dir) {
			if seen[message] {
				t.Errorf("%s was given twice", message)
			}
			seen[message] = true
		}
	}
	wait.Wait()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > record.SpoolSize {
		t.Errorf("%d files, %v", len(entries), err)
	}
}

// TestSpoolIsRootsOwn writes nowhere else, and reads nothing else.
func TestSpoolIsRootsOwn(t *testing.T) {
	t.Parallel()
	open, secret := spool(t), spool(t)
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	link, none := filepath.Join(t.TempDir(), "failures"), filepath.Join(t.TempDir(), "failures")
	if err := os.Symlink(secret, link); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{open, link, none, "/dev/null"} {
		record.Keep(dir, recorded())
		if err := ReplaySpool(dir, func([]byte) { t.Errorf("%s has records", dir) }); (err == nil) != (dir == none) {
			t.Errorf("%s: %v", dir, err)
		}
		if records, err := ReadAll(dir); err == nil || errors.Is(err, fs.ErrNotExist) != (dir == none) {
			t.Errorf("%s has %v, %v", dir, records, err)
		}
	}
	for _, dir := range []string{open, secret} {
		if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
			t.Errorf("%s has %v, %v", dir, entries, err)
		}
	}
	if _, err := os.Stat(none); err == nil {
		t.Error("a directory was made")
	}
}

// TestSpoolWithRubbish gives a record that can't be read as it is, and follows
// no link.
func TestSpoolWithRubbish(t *testing.T) {
	t.Parallel()
	dir := spool(t)
	for name, content := range map[string][]byte{"1.json": []byte("{"), "2.part": []byte("{"), "3.json": make([]byte, 10*record.MaxSize)} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/hostname", filepath.Join(dir, "4.json")); err != nil {
		t.Fatal(err)
	}
	var got [][]byte
	if err := ReplaySpool(dir, func(document []byte) { got = append(got, document) }); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || !bytes.Equal(got[0], []byte("{")) || len(got[1]) != record.MaxSize+1 {
		t.Errorf("%d documents", len(got))
	}
}

// messages returns those of all records in a directory.
func messages(t *testing.T, dir string) (messages []string) {
	t.Helper()
	records, err := ReadAll(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records {
		messages = append(messages, r.Message)
	}
	return messages
}

// TestReadAll returns what the plugin kept, and leaves it to the agent.
func TestReadAll(t *testing.T) {
	t.Parallel()
	dir := spool(t)
	want := []string{"1", "2", "3"}
	for i := range want {
		record.Keep(dir, numbered(i+1))
	}
	for i, name := range lab.FileNames(t, dir) { // files of the same content that the plugin has not finished
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err := errors.Join(err, os.WriteFile(filepath.Join(dir, fmt.Sprint(i, "-x", record.Unfinished)), content, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if diff := cmp.Diff(want, messages(t, dir)); diff != "" {
			t.Error(diff)
		}
	}
	if diff := cmp.Diff(want, replay(t, dir)); diff != "" {
		t.Error(diff)
	}
	if left := messages(t, dir); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func BenchmarkSend(b *testing.B) {
	socket := filepath.Join(b.TempDir(), "s")
	conn := lab.AgentSocket(b, socket)
	go func() {
		buffer := make([]byte, record.MaxSize)
		for err := error(nil); err == nil; {
			_, err = conn.Read(buffer)
		}
	}()
	for _, at := range []string{socket, socket + ".none"} {
		b.Run(map[bool]string{true: "read", false: "absent"}[at == socket], func(b *testing.B) {
			for b.Loop() {
				record.Send(at, recorded())
			}
		})
	}
}
