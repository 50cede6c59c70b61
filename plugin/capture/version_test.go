// SPDX-License-Identifier: Apache-2.0

package capture_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/iptables"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
	"github.com/capture-cni/capture-cni/plugin/nftables"
)

// TestGoldenVersion refuses other Stamps or other bytes for the kernel under the same rulesVersion. A guard of such a
// release would find the pods of the earlier one drifted instead of outdated, and repair or evict all of them.
func TestGoldenVersion(t *testing.T) {
	const file = "testdata/version.txt"
	recorded := map[string]string{}
	content, err := os.ReadFile(file)
	if err != nil && !*update {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		name, sum, _ := strings.Cut(strings.TrimSpace(line), " ")
		recorded[name] = sum
	}
	cases, _ := filepath.Glob("testdata/*/pod.yaml")
	var now strings.Builder
	for _, path := range cases {
		name := filepath.Base(filepath.Dir(path))
		rs := rulesOf(t, filepath.Dir(path))
		for _, chain := range rs.Chains { // comments, which CHECK and the guard ignore
			for i := range chain.Rules {
				chain.Rules[i].Why = ""
			}
		}
		batch := nfnetlink.NewBatch()
		nftables.Queue(batch, rs)
		written := fmt.Sprintf("%s%s%s", batch.Content, iptables.RestoreText(rs, capture.IPv4, nil), iptables.RestoreText(rs, capture.IPv6, nil))
		version := strings.Fields(rs.Stamp())[2]
		sum := fmt.Sprintf("%s %x", version, sha256.Sum256([]byte(written)))
		if old := recorded[name]; old != sum && strings.HasPrefix(old, version+" ") {
			t.Errorf("the rules of %s changed: increase rulesVersion, or delete %s if no release has %s; then run make golden", name, file, version)
		}
		fmt.Fprintln(&now, name, sum)
	}
	lab.ExpectGolden(t, *update && !t.Failed(), file, now.String())
}
