// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestLargestLists has a node whose pods have the longest lists that a runtime
// can list together: its answer ends at 16 MiB. The built guard has the memory
// of the chart's container. After some rounds it keeps neither threads nor descriptors
// of the pods. Pods of the same list share a namespace, which spares the test its making.
func TestLargestLists(t *testing.T) {
	t.Parallel()
	lab.RequireTime(t)
	const (
		pods, lists = 110, 11
		annotations = 140 << 10 // bytes of each pod's
		container   = 128 << 20
		mostMemory  = 96 << 20
		mostTime    = 30 * time.Second // of a core: the time that passes depends on what else runs
	)
	n, stub := newNode(), newCRIStub()
	for i := range lists {
		p := n.run(t, fmt.Sprintf("web-%d", i))
		p.sandbox.Annotations["traffic.sidecar.istio.io/excludeOutboundIPRanges"] = addresses(i, annotations)
		p.capture(t, nil)
		for j := i; j < pods; j += lists {
			sandbox := p.sandbox
			sandbox.ID, sandbox.Name = fmt.Sprintf("web-%d", j), fmt.Sprintf("web-%d", j)
			n.pods[sandbox.Name] = meshed(sandbox)
			stub.add(sandbox)
		}
	}
	dir := t.TempDir()
	n.serveIn(t, dir)
	b := startBy(t, nil, []string{"GOMEMLIMIT=" + strconv.Itoa(container/2)}, // as it sets itself in a container
		"--run-dir", dir, "--cri-socket", serveCRI(t, dir, stub), "--round", "2s")
	b.waitForCaptured(t, pods)
	examined, _ := usage(t, b.Process.Pid)
	lab.Eventually(t, func() error {
		if n.answered() < 3*pods { // two rounds more
			return fmt.Errorf("%d requests about %d pods", n.answered(), pods)
		}
		return nil
	})
	used, resident := usage(t, b.Process.Pid)
	if t.Logf("examined with %s of a core, then again with %s; %d MiB resident at most", examined, (used-examined)/2, resident>>20); examined > mostTime {
		t.Errorf("the guard examined all pods with %s of a core, want %s at most", examined, mostTime)
	}
	if resident > mostMemory {
		t.Errorf("the guard held %d MiB, want %d at most", resident>>20, mostMemory>>20)
	}
	lab.Check(t, keepsNothing(b.Process.Pid))
}

// addresses lists addresses of a pod's own, as many as fit, none of which
// borders on another.
func addresses(pod, size int) string {
	var list []byte
	for i := 0; len(list) < size-len("255.255.255.255/32,"); i++ {
		list = fmt.Appendf(list, "%d.%d.%d.%d/32,", 101+pod, 100+i/10_000, 100+i/100%100, 50+2*(i%100))
	}
	return string(list[:len(list)-1])
}

// keepsNothing returns an error for a guard with threads and descriptors in namespaces of
// pods whose examination has ended.
func keepsNothing(pid int) error {
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return err
	}
	var kept []string
	for _, pattern := range []string{"task/*/ns/net", "fd/*"} {
		paths, globErr := filepath.Glob(fmt.Sprintf("/proc/%d/%s", pid, pattern))
		err = errors.Join(err, globErr)
		for _, path := range paths {
			if link, err := os.Readlink(path); err == nil && link != own && (strings.HasPrefix(link, "net:") || strings.Contains(link, "/netns/")) {
				kept = append(kept, path)
			}
		}
	}
	if len(kept) > 10 { // of hundreds of examinations; one goes on
		err = fmt.Errorf("the guard keeps %d namespaces: %q", len(kept), kept[:3])
	}
	return err
}

// usage is a process' time on the processors, and the most memory that was
// resident of it so far, in bytes. See proc_pid_stat(5), proc_pid_status(5); a
// tick is a hundredth of a second.
func usage(t *testing.T, pid int) (used time.Duration, resident int) {
	t.Helper()
	number := func(text string) int {
		n, err := strconv.Atoi(text)
		lab.Check(t, err)
		return n
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	lab.Check(t, err)
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	lab.Check(t, err)
	_, after, _ := strings.Cut(string(status), "VmHWM:")
	return time.Duration(number(fields[11])+number(fields[12])) * 10 * time.Millisecond, number(strings.Fields(after)[0]) << 10
}
