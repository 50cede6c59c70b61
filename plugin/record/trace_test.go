// SPDX-License-Identifier: Apache-2.0

package record

import (
	"strings"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestTraceOf takes the id of a valid traceparent, of a later version, too, and no other text.
func TestTraceOf(t *testing.T) {
	t.Parallel()
	const trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	for parent, want := range map[string]string{
		"00-" + trace + "-" + span + "-01":      trace,
		"00-" + trace + "-" + span + "-ff":      trace,
		"cc-" + trace + "-" + span + "-00":      trace,
		"cc-" + trace + "-" + span + "-00-what": trace,

		"": "", "-": "", "---": "",
		"00-" + trace + "-" + span:                                      "",
		"00-" + trace + "-" + span + "-":                                "",
		"00-" + trace + "-" + span + "-1":                               "",
		"00-" + trace + "-" + span + "-0g":                              "",
		"00-" + trace + "-" + span + "-01-":                             "",
		"00-" + trace + "-" + span + "-01-what":                         "",
		"00-" + trace + "-" + span + "-01 ":                             "",
		" 00-" + trace + "-" + span + "-01":                             "",
		"ff-" + trace + "-" + span + "-01":                              "",
		"0-" + trace + "-" + span + "-001":                              "",
		"0g-" + trace + "-" + span + "-01":                              "",
		"00-" + strings.ToUpper(trace) + "-" + span + "-01":             "",
		"00-" + trace[1:] + "-" + span + "-01":                          "",
		"00-" + trace + "0-" + span + "-01":                             "",
		"00-" + strings.Repeat("0", 32) + "-" + span + "-01":            "",
		"00-" + trace + "-" + strings.Repeat("0", 16) + "-01":           "",
		"00-" + trace + "-" + span[1:] + "-01":                          "",
		"00_" + trace + "_" + span + "_01":                              "",
		"00-" + trace + "-" + span[:15] + "\n-01":                       "",
		"00-" + trace[:31] + "\x1b-" + span + "-01":                     "",
		"00-" + trace + "-" + span + "-01" + strings.Repeat("x", 1<<20): "",
	} {
		if got := TraceOf(parent); got != want {
			t.Errorf("%.80q: %q, want %q", parent, got, want)
		}
	}
}

// TestBytes pins the form that agents of all releases read. A record without a trace has no field
// for one, because earlier agents refuse unknown fields.
func TestBytes(t *testing.T) {
	t.Parallel()
	r := Record{
		Time: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Pod: capture.PodRef{Namespace: "shop", Name: "web", UID: "u-1"}, Sandbox: "4ed1",
		Verdict: Failed, Reason: capture.ReasonKernel, Backend: "nftables", Stamp: "s", Code: 5, Message: "m", Warnings: []string{"w"}, Notes: []string{"n"},
		Stages: map[Stage]float64{Deciding: 0.5},
	}
	const head = `{"version":1,"time":"2026-01-02T03:04:05.000000006Z","pod":{"namespace":"shop","name":"web","uid":"u-1"},"sandbox":"4ed1",`
	const tail = `"verdict":"failed","reason":"kernel","backend":"nftables","stamp":"s","code":5,"message":"m","warnings":["w"],"notes":["n"],"stages":{"decide":0.5}}`
	if got := string(Encode(r)); got != head+tail {
		t.Errorf("got  %s\nwant %s", got, head+tail)
	}
	r.Trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	if got, want := string(Encode(r)), head+`"trace":"`+r.Trace+`",`+tail; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
