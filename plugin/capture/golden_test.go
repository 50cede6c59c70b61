// SPDX-License-Identifier: Apache-2.0

package capture_test

import (
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
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
			expectGolden(t, filepath.Join(dir, "ruleset.nft"), rs.String())
			expectGolden(t, filepath.Join(dir, "iptables.txt"), netfilter.RestoreText(rs, capture.IPv4))
			if len(rs.For(capture.IPv6).Chains) > 0 {
				expectGolden(t, filepath.Join(dir, "ip6tables.txt"), netfilter.RestoreText(rs, capture.IPv6))
			}
		})
	}
}

func expectGolden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(read(t, path)), got); diff != "" {
		t.Errorf("%s changed (-golden +now); run make golden if this is intended:\n%s", path, diff)
	}
}

func rulesOf(t *testing.T, dir string) capture.Ruleset {
	t.Helper()
	decision, err := lab.Decide(podOf(t, dir), settingsOf(t, dir), addressesOf(t, dir)...)
	if err != nil {
		t.Fatal(err)
	}
	return capture.Rules(decision.Intent)
}

// TestReceivedPods expects the same decision for a pod that was sent as JSON.
func TestReceivedPods(t *testing.T) {
	cases, _ := filepath.Glob("testdata/*/pod.yaml")
	for _, path := range cases {
		dir := filepath.Dir(path)
		pod := podfields.Of(podOf(t, dir))
		sent, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		var received capture.Pod
		if err := json.Unmarshal(sent, &received); err != nil {
			t.Fatal(err)
		}
		addresses := func() ([]netip.Addr, error) { return addressesOf(t, dir), nil }
		want, err := capture.Decide(pod, settingsOf(t, dir), addresses)
		if err != nil {
			t.Fatal(err)
		}
		got, err := capture.Decide(received, settingsOf(t, dir), addresses)
		if err != nil || !reflect.DeepEqual(received, pod) || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: received %+v, sent %+v: decided %+v, want %+v, %v", dir, received, pod, got, want, err)
		}
	}
}

func podOf(t *testing.T, dir string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict(read(t, filepath.Join(dir, "pod.yaml")), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

func settingsOf(t *testing.T, dir string) config.Settings {
	t.Helper()
	entry := optional(t, filepath.Join(dir, "settings.json"), "{}")
	input, err := config.Read([]byte(entry))
	if err != nil {
		t.Fatal(err)
	}
	conf, warnings, err := input.NetConf()
	if err != nil || len(warnings) > 0 {
		t.Fatal(warnings, err)
	}
	return conf.Capture
}

func addressesOf(t *testing.T, dir string) []netip.Addr {
	t.Helper()
	var addresses []netip.Addr
	for _, text := range strings.Fields(optional(t, filepath.Join(dir, "addresses"), "10.1.2.3")) {
		addresses = append(addresses, netip.MustParseAddr(text))
	}
	return addresses
}

func optional(t *testing.T, path, byDefault string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return byDefault
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
