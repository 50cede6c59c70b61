// SPDX-License-Identifier: Apache-2.0

package project

import (
	"os"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestAdmissionSettings expects every annotation that can weaken capture in the
// settings of the admission policy.
func TestAdmissionSettings(t *testing.T) {
	content, err := os.ReadFile("../../deploy/chart/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		Admission struct {
			Settings struct{ Annotations map[string][]string }
		}
	}
	if err := yaml.Unmarshal(content, &values); err != nil {
		t.Fatal(err)
	}
	harmless := map[string]bool{
		"sidecar.istio.io/status":                       true, // its absence is refused
		"traffic.sidecar.istio.io/includeOutboundPorts": true, // captures more
	}
	for _, a := range capture.Annotations(config.Istio) {
		if _, ok := values.Admission.Settings.Annotations[a.Key]; !ok && !harmless[a.Key] {
			t.Errorf("admission.settings.annotations has no %s", a.Key)
		}
	}
}
