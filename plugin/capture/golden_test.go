// SPDX-License-Identifier: Apache-2.0

package capture_test

import (
	"encoding/json"
	"flag"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/iptables"
	"github.com/capture-cni/capture-cni/plugin/podfields"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestGolden compares the rules of every case with files that nft, iptables-restore
// and ip6tables-restore can load. A case is a directory with pod.yaml, ruleset.nft,
// iptables.txt and ip6tables.txt. Optional are settings.json, with keys of our
// conflist entry, and addresses.
func TestGolden(t *testing.T) {
	cases, err := filepath.Glob("testdata/*/pod.yaml")
	if err != nil || len(cases) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, path := range cases {
		dir := filepath.Dir(path)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			t.Parallel()
			rs := rulesOf(t, dir)
			lab.ExpectGolden(t, *update, filepath.Join(dir, "ruleset.nft"), rs.String())
			lab.ExpectGolden(t, *update, filepath.Join(dir, "iptables.txt"), iptables.RestoreText(rs, capture.IPv4, nil))
			if len(rs.For(capture.IPv6).Chains) > 0 {
				lab.ExpectGolden(t, *update, filepath.Join(dir, "ip6tables.txt"), iptables.RestoreText(rs, capture.IPv6, nil))
			}
		})
	}
}

func rulesOf(t *testing.T, dir string) capture.Ruleset {
	t.Helper()
	return lab.ReadCase(t, dir).Rules(t)
}

// TestReceivedPods expects the same decision for a pod that was sent as JSON.
func TestReceivedPods(t *testing.T) {
	cases, _ := filepath.Glob("testdata/*/pod.yaml")
	for _, path := range cases {
		dir := filepath.Dir(path)
		known := lab.ReadCase(t, dir)
		pod := podfields.Of(known.Pod)
		sent, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		var received capture.Pod
		if err := json.Unmarshal(sent, &received); err != nil {
			t.Fatal(err)
		}
		want, err := capture.Decide(pod, known.Settings)
		if err != nil {
			t.Fatal(err)
		}
		got, err := capture.Decide(received, known.Settings)
		if err != nil || !reflect.DeepEqual(received, pod) || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: received %+v, sent %+v: decided %+v, want %+v, %v", dir, received, pod, got, want, err)
		}
	}
}
