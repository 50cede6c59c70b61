// SPDX-License-Identifier: Apache-2.0

package node

import (
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/report"
)

// TestListThatIsSkipped is a fault of agent and verify: CRI-O may skip a list whose program the
// agent does not see, and with it the entry.
func TestListThatIsSkipped(t *testing.T) {
	t.Parallel()
	n, _, _ := listNode(t, map[string]string{"05-bridge.conflist": strings.Replace(machine.PtpList, "ptp", "gone", 1), primaryFile: machine.PtpList}, report.Owned, false)
	const want = "the runtime may load 10-ptp.conflist, which has no entry"
	if _, err := n.PlaceEntry(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the agent: %v", err)
	}
	if _, err := n.examineEntry(t.Context(), n.Credentials.Kubeconfig, report.Owned); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("verify: %v", err)
	}
}

// TestPlainConfigurations leaves a plain configuration where it is, also one that its owner writes
// after mode auto is decided, and restores one that an earlier release renamed. For a list that an
// earlier release made, modes insert and dropin keep the entry, and report a fault.
func TestPlainConfigurations(t *testing.T) {
	t.Parallel()
	const plain, renamed = "10-bridge.conf", "10-bridge.conf.capture-cni-original"
	made := "{\n  \"cniVersion\": \"1.0.0\",\n  \"name\": \"podnet\",\n  \"plugins\": [\n    {\n      \"cniVersion\": \"1.0.0\",\n      \"name\": \"podnet\",\n      \"type\": \"bridge\"\n    },\n    {\n      \"type\": \"capture-cni\"\n    }\n  ]\n}\n"
	for name, test := range map[string]struct{ files, later map[string]string }{
		"from the start": {map[string]string{plain: machine.BridgeConf}, nil},
		"renamed":        {map[string]string{renamed: machine.BridgeConf, "10-bridge.conflist": made}, nil},
		"written later":  {map[string]string{"20-ptp.conflist": machine.PtpList}, map[string]string{plain: machine.BridgeConf}},
	} {
		n, net, _ := listNode(t, test.files, report.Auto, false)
		if _, err := n.PlaceEntry(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for file, content := range test.later {
			machine.Write(t, net, file, content)
		}
		for range 2 { // the first one restores, and the list then embeds the plain file
			if _, err := n.PlaceEntry(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if files := machine.Files(t, net); files[plain] != machine.BridgeConf || files[renamed] != "" || !strings.Contains(files[conflist.OwnedName], `"bridge"`) {
			t.Errorf("%s: %q", name, files)
		}
		if _, err := n.examineEntry(t.Context(), n.Credentials.Kubeconfig, report.Auto); err != nil {
			t.Errorf("%s, verify: %v", name, err)
		}
	}
	for _, mode := range []report.Mode{report.Insert, report.DropIn} { // the owner of the renamed file may write it again
		n, net, _ := listNode(t, map[string]string{renamed: machine.BridgeConf, "10-bridge.conflist": made}, mode, false)
		_, placeErr := n.PlaceEntry(t.Context())
		_, verifyErr := n.examineEntry(t.Context(), n.Credentials.Kubeconfig, mode)
		for _, err := range []error{placeErr, verifyErr} {
			if err == nil || conflist.IsWaiting(err) || !strings.Contains(err.Error(), `use mode "owned"`) {
				t.Errorf("mode %s: %v", mode, err)
			}
		}
		machine.ExpectFiles(t, net, map[string]string{renamed: machine.BridgeConf, "10-bridge.conflist": made})
	}
}
