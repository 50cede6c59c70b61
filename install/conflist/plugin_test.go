// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
)

// TestCheckPlugin agrees with what libcni loads from a network's directory, and quotes
// nothing.
func TestCheckPlugin(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"type": "tuning"}`:                       "",
		`{"type": "tuning", "secret": 1e400}`:      "",
		`{"cniVersion": "9.9.9", "type": "x"}`:     "",
		``:                                         "not JSON at byte",
		`{"type": "tuning", "secret": "s3cr3t"`:    "not JSON at byte",
		`{"type": "tuning"} {}`:                    "not JSON at byte",
		`["s3cr3t"]`:                               "a JSON array where another type",
		`{"secret": "s3cr3t"}`:                     "expected a type",
		`null`:                                     "expected a type",
		`{"type": "", "secret": "s3cr3t"}`:         "expected a type",
		`{"type": "tuning", "cniVersion": 1}`:      "a JSON number where another type",
		`{"type": "tuning", "capabilities": "s3"}`: "a JSON string where another type",
	} {
		directory := t.TempDir()
		if err := os.Mkdir(filepath.Join(directory, "chain"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(directory, "chain", "a.conf"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, loadErr := libcni.NetworkPluginConfsFromFiles(directory, "chain")
		err := checkPlugin([]byte(text))
		if (err == nil) != (loadErr == nil) {
			t.Errorf("%s: %v, and libcni says %v", text, err, loadErr)
		}
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3")) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestCheckAuxiliaryChain reads what the thick daemon of Multus generates, as a plain
// configuration and as the list that containerd makes of one.
func TestCheckAuxiliaryChain(t *testing.T) {
	t.Parallel()
	const generated = `{"capabilities":{"portMappings":true},"cniVersion":"0.3.1","name":"multus-cni-network","clusterNetwork":"/host/run/multus/cni/net.d/10-ovn-kubernetes.conf","type":"multus-shim","auxiliaryCNIChainName":"vendor-cni-chain"}`
	for text, want := range map[string]string{
		generated: "",
		`{"cniVersion":"0.3.1","name":"multus-cni-network","plugins":[` + generated + `]}`: "",
		strings.Replace(generated, "multus-shim", "multus", 1):                             "",
		strings.Replace(generated, `,"auxiliaryCNIChainName":"vendor-cni-chain"`, "", 1):   "has no auxiliaryCNIChainName",
		strings.Replace(generated, "vendor-cni-chain", "other", 1):                         `is "other": expected "vendor-cni-chain"`,
		`{"cniVersion":"1.0.0","name":"podnet","plugins":[{"type":"ptp"}]}`:                "does not call Multus",
		`{`: "not JSON",
	} {
		err := CheckAuxiliaryChain([]byte(text), "vendor-cni-chain")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
