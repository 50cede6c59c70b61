// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// TestLogging writes an entry of each level.
func TestLogging(t *testing.T) {
	for _, tt := range []struct {
		level string
		want  string // initials of the levels in the log
	}{
		{"debug", "DIWE"},
		{"info", "IWE"},
		{"warn", "WE"},
		{"error", "E"},
	} {
		t.Run(tt.level, func(t *testing.T) {
			var out bytes.Buffer
			log, err := logging{tt.level, "json"}.logger(&out)
			if err != nil {
				t.Fatal(err)
			}
			log.Debug("entry")
			log.Info("entry")
			log.Warn("entry")
			log.Error("entry")
			var got string
			for line := range strings.Lines(out.String()) {
				var entry struct{ Level, Msg string }
				if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Msg != "entry" {
					t.Fatalf("%s: %v", line, err)
				}
				got += entry.Level[:1]
			}
			if got != tt.want {
				t.Errorf("the log has levels %s, want %s", got, tt.want)
			}
		})
	}
	for _, l := range []logging{{"loud", "json"}, {"info", "yaml"}, {"", ""}} {
		if _, err := l.logger(nil); err == nil || !strings.Contains(err.Error(), "expected") {
			t.Errorf("%+v: %v", l, err)
		}
	}
}
