// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// TestReadLimits refuses what no plugin of ours writes: names that are none, and
// texts that are too long. The error says what was expected and is short itself.
func TestReadLimits(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 8<<10)
	for want, change := range map[string]func(*record.Record){
		"pod.namespace":            func(r *record.Record) { r.Pod.Namespace = strings.Repeat("x", record.MaxNamespace+1) },
		"pod.namespace ":           func(r *record.Record) { r.Pod.Namespace = "a/b" },
		"pod.name":                 func(r *record.Record) { r.Pod.Name = strings.Repeat("x", record.MaxName+1) },
		"pod.name ":                func(r *record.Record) { r.Pod.Name = "a\nb" },
		"pod.uid":                  func(r *record.Record) { r.Pod.UID = "../../etc/passwd" },
		"pod.uid ":                 func(r *record.Record) { r.Pod.UID = strings.Repeat("x", record.MaxUID+1) },
		"sandbox":                  func(r *record.Record) { r.Sandbox = long },
		"trace":                    func(r *record.Record) { r.Trace = strings.Repeat("0", 32) },
		"trace ":                   func(r *record.Record) { r.Trace = long },
		"backend":                  func(r *record.Record) { r.Backend = long },
		"message of 8192 bytes":    func(r *record.Record) { r.Message = long },
		"or note of 8192 bytes":    func(r *record.Record) { r.Warnings = []string{"a", long} },
		"a stamp of 8192 bytes":    func(r *record.Record) { r.Stamp = long },
		"9 notes":                  func(r *record.Record) { r.Notes = make([]string, record.MaxWarnings+1) },
		"9 warnings":               func(r *record.Record) { r.Warnings = make([]string, record.MaxWarnings+1) },
		"stage decide took":        func(r *record.Record) { r.Stages = map[record.Stage]float64{record.Deciding: 1e300} },
		"stage lookup took":        func(r *record.Record) { r.Stages = map[record.Stage]float64{record.LookingUp: -1} },
		"time 3026-01-02":          func(r *record.Record) { r.Time = r.Time.AddDate(1000, 0, 0) },
		"time 2262-01-01":          func(r *record.Record) { r.Time = time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC) },
		"time 1969-12-31":          func(r *record.Record) { r.Time = time.Date(1969, 12, 31, 23, 59, 59, 0, time.UTC) },
		"verdict":                  func(r *record.Record) { r.Verdict = record.Verdict(long) },
		"a record of 65537 bytes":  func(r *record.Record) { r.Message = strings.Repeat("x", record.MaxSize+1) },
		"stage \"" + long[:16]:     func(r *record.Record) { r.Stages = map[record.Stage]float64{record.Stage(long): 1} },
		"with reason \"xxxxxxxxxx": func(r *record.Record) { r.Reason = capture.Reason(long) },
	} {
		r := recorded(change)
		document, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if len(document) > record.MaxSize {
			document = document[:record.MaxSize+1]
		}
		if _, err := ParseRecord(document); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) || len(err.Error()) > 512 {
			t.Errorf("%s: %.600v", want, err)
		}
	}
	unknown := fmt.Appendf(nil, `{"version":1,"verdict":"captured",%q:1}`, long)
	if _, err := ParseRecord(unknown); err == nil || len(err.Error()) > 512 {
		t.Errorf("an unknown key: %.600v", err)
	}
}

// TestReadsTheLargest reads what is as large, as long or as late as the limits allow.
func TestReadsTheLargest(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*record.Record){
		"first time": func(r *record.Record) { r.Time = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC) },
		"last time":  func(r *record.Record) { r.Time = time.Date(2261, 12, 31, 23, 59, 59, 0, time.UTC) },
		"names": func(r *record.Record) {
			long := func(most int) string { return strings.Repeat("x", most) }
			r.Pod = capture.PodRef{Namespace: long(record.MaxNamespace), Name: long(record.MaxName), UID: long(record.MaxUID)}
			r.Sandbox, r.Backend, r.Stamp = long(record.MaxSandbox), long(record.MaxBackend), long(maxStamp)
		},
		"texts": func(r *record.Record) {
			r.Message = record.Cut(strings.Repeat("x", record.MaxMessage+1), record.MaxMessage)
			for range record.MaxWarnings {
				r.Warnings = append(r.Warnings, record.Cut(strings.Repeat("x", record.MaxWarning+1), record.MaxWarning))
			}
			r.Notes = r.Warnings
		},
		"stages": func(r *record.Record) {
			r.Stages = map[record.Stage]float64{record.Deciding: maxStage.Seconds(), record.LookingUp: 0}
		},
	} {
		if _, err := ParseRecord(record.Encode(recorded(change))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWrittenIsRead sends nothing that is not read: names that are none are left
// out, so that the verdict is counted all the same.
func TestWrittenIsRead(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ü\x00\"", 10<<10)
	r := recorded(func(r *record.Record) {
		r.Pod, r.Sandbox, r.Message, r.Backend = capture.PodRef{Namespace: long, Name: long, UID: long}, long, long, long
		for range 100 {
			r.Warnings = append(r.Warnings, long)
		}
	})
	got, err := ParseRecord(record.Encode(r))
	if err != nil || got.Pod != (capture.PodRef{}) || got.Sandbox != "" || got.Backend != "" || got.Verdict != r.Verdict || len(got.Message) > record.MaxMessage+len("…") {
		t.Errorf("read %+v, %v", got, err)
	}
}

// TestSpoolBytes drops the oldest where a few are large, and leaves the youngest
// whatever its size.
func TestSpoolBytes(t *testing.T) {
	t.Parallel()
	dir := spool(t)
	const large = record.SpoolBytes / 4
	for i := range 6 {
		name := record.FileName(numbered(i), "LARGE")
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, large), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	record.Keep(dir, numbered(9))
	total := 0
	names := lab.FileNames(t, dir)
	for _, name := range names {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		total += int(info.Size())
	}
	if total > record.SpoolBytes || len(names) != 4 || !strings.HasPrefix(names[3], strings.TrimSuffix(record.FileName(numbered(9), ""), record.Finished)) {
		t.Errorf("%d bytes are left, in %q", total, names)
	}
}

// TestReplayIsBounded takes no more than a spool holds from a directory that an
// older version, or root by hand, has filled.
func TestReplayIsBounded(t *testing.T) {
	t.Parallel()
	dir := spool(t)
	for i := range 3 * record.SpoolSize {
		if err := os.WriteFile(filepath.Join(dir, record.FileName(numbered(i), "MANY")), record.Encode(numbered(i)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := replay(t, dir); len(got) != record.SpoolSize || got[0] != fmt.Sprint(2*record.SpoolSize) {
		t.Errorf("%d were taken, from %s on", len(got), got[0])
	}
	if left := lab.FileNames(t, dir); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

// FuzzRead wants every record that is read to be within the limits, to be
// written as it was read, and to name a file of its own directory.
func FuzzRead(f *testing.F) {
	f.Add(record.Encode(recorded()))
	f.Add(record.Encode(recorded(func(r *record.Record) {
		r.Verdict, r.Reason, r.Stages, r.Warnings = record.Captured, "", nil, []string{"a", "ü"}
	})))
	f.Add([]byte(`{"version":1,"verdict":"found","reason":"drifted","pod":{"namespace":"a","name":"b","uid":".."},"time":"9999-12-31T23:59:59Z"}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		r, err := ParseRecord(document)
		if err != nil {
			if len(err.Error()) > 1024 || errors.Is(err, errVersion) && r.Version != 0 {
				t.Errorf("%d bytes of error, %+v", len(err.Error()), r)
			}
			return
		}
		again, err := ParseRecord(record.Encode(r))
		if err != nil || again.Pod != r.Pod || again.Sandbox != r.Sandbox || len(again.Warnings) != len(r.Warnings) {
			t.Errorf("%q is read as %+v, and again as %+v, %v", document, r, again, err)
		}
		name := record.FileName(r, r.Pod.UID)
		if key, ok := key(record.File{Name: name}); len(name+record.Unfinished) > 255 || filepath.Base(name) != name || !ok || key != r.Pod.UID {
			t.Errorf("%q names the file %q", document, name)
		}
	})
}
