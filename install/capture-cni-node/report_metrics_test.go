// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

// TestReportHasEveryFault wants the metrics of faults in a report, with the labels that agent
// and guard give them.
func TestReportHasEveryFault(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		`capture_cni_node_good{part="entry"} 0`,
		`capture_cni_entry_contended{writer="unknown"} 1`,
		`capture_cni_other_mesh_entry{decision="kept",type="istio-cni"} 1`,
		`capture_cni_preflight_problems{severity="serious"} 2`,
		`capture_cni_api_refused 1`,
		`capture_cni_pods{mesh="istio",state="uncaptured"} 1`,
		`capture_cni_exempt_pods{cause="no_proxy"} 1`,
		`capture_cni_pod_repairs_total{result="failed"} 1`,
		`capture_cni_evictions_total{result="refused"} 1`,
		`capture_cni_adds_total{reason="lookup",result="failed"} 1`,
		`capture_cni_records_lost_total{cause="form"} 1`,
		`capture_cni_runtime_info{name="containerd",socket="/run/containerd/containerd.sock",version="2.4.2"} 1`,
		`capture_cni_pods_connections_refused_total{reason="full"} 1`,
	} {
		if !isKnownSample(line) {
			t.Errorf("a report leaves out %s", line)
		}
	}
	for _, line := range []string{`capture_cni_pods{pod="shop/web"} 1`, `another_metric 1`, `capture_cni_node_good{part="entry"} secret`} {
		if isKnownSample(line) {
			t.Errorf("a report has %s", line)
		}
	}
}
