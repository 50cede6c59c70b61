// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"fmt"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/terms"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// TestConfirmBy believes the record of the sandbox's own ADD, if it captured the pod, and
// only while the baseline is unknown or was adopted without a record.
func TestConfirmBy(t *testing.T) {
	t.Parallel()
	const stamp, other = "capture-cni rules v5 ipv4 00112233445566778899aabbccddeeff", "capture-cni rules v1 ipv4 00112233445566778899aabbccddeeff"
	adopted := baseline{Stamp: other, Backend: config.IPTablesNFT, Digest: "2:00", Unconfirmed: true}
	known, same := adopted, adopted
	known.Unconfirmed, same.Stamp = false, stamp
	confirmed := same
	confirmed.Unconfirmed = false
	fresh := baseline{Stamp: stamp, Backend: config.NFTables}
	for name, tt := range map[string]struct {
		before baseline
		change func(*record.Record)
		want   baseline
	}{
		"unknown":             {baseline{}, func(*record.Record) {}, fresh},
		"adopted":             {adopted, func(*record.Record) {}, fresh},
		"adopted as recorded": {same, func(*record.Record) {}, confirmed},
		"known":               {known, func(*record.Record) {}, known},
		"another sandbox":     {adopted, func(r *record.Record) { r.Sandbox = "another" }, adopted},
		"another pod":         {adopted, func(r *record.Record) { r.Pod.UID = "another" }, adopted},
		"failed":              {adopted, func(r *record.Record) { r.Verdict = record.Failed }, adopted},
		"without a stamp":     {adopted, func(r *record.Record) { r.Stamp = "" }, adopted},
	} {
		w := examined("web", Finding{})
		add := record.Record{Pod: refOf(w.sandbox), Sandbox: w.sandbox.ID, Verdict: record.Captured, Backend: "nftables", Stamp: stamp}
		tt.change(&add)
		got := tt.before
		if got.confirmBy(writeHistory(t, add), w.sandbox); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

// TestUnreadable takes rules that no ADD makes for changed ones.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want terms.State
	}{
		{fmt.Errorf("reading: %w", nfnetlink.TooLarge{What: "rules", Limit: 5000}), terms.Drifted},
		{fmt.Errorf("reading: %w", nfnetlink.ErrChanging), terms.Drifted},
		{errors.New("no such file"), terms.Unknown},
	} {
		if got := unreadable(tt.err); got != (Finding{State: tt.want, Reason: tt.err.Error()}) {
			t.Errorf("%v: %+v", tt.err, got)
		}
	}
}
