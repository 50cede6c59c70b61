// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
)

// TestMemory runs the agent on a node with large pods, in a cluster with many others: it
// stays within half of the memory that the chart gives it.
func TestMemory(t *testing.T) {
	lab.RequireTime(t)
	const container = 128 << 20
	n := newNode(t)
	for i := range 2000 {
		p := machine.NewPod(fmt.Sprintf("web-%d", i), true)
		p.UID = types.UID(p.Name)
		p.Spec.NodeName = fmt.Sprintf("node-%d", i%10) // 200 of each
		p.Annotations["traffic.sidecar.istio.io/excludeOutboundPorts"] = strings.Repeat("80,", 20<<10) + "80"
		p.Annotations["example.com/other"] = strings.Repeat("x", 40<<10)
		n.API.Put(p)
	}
	a := n.StartBehind(t, []string{"env", fmt.Sprintf("GOMEMLIMIT=%d", container/2)}, "--mode", "insert") // as it sets itself in a container
	a.Ready(t)
	lab.Check(t, a.ExpectMetric("capture_cni_pods_watched 200"))
	resident := peakMemory(t, a)
	t.Logf("%d MiB at most", resident>>20)
	if resident > container/2 {
		t.Errorf("the agent held %d MiB, want %d at most", resident>>20, container/2>>20)
	}
}

// peakMemory returns the most memory that the agent has held, in bytes.
func peakMemory(t *testing.T, a *machine.Agent) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.Process.Pid))
	lab.Check(t, err)
	peak := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if peak == nil {
		t.Fatalf("no peak in %s", status)
	}
	kilobytes, err := strconv.Atoi(string(peak[1]))
	lab.Check(t, err)
	return kilobytes << 10
}
