// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/terms"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/nftables"
)

// TestCost runs the built guard on a node with 200 captured pods, and prints what it
// takes. After many examinations the guard keeps neither threads nor descriptors of them.
func TestCost(t *testing.T) {
	lab.RequireRoot(t)
	lab.RequireTime(t)
	crowd := captureCrowd(t, 200, func(i int) map[string]string {
		return map[string]string{"traffic.sidecar.istio.io/excludeInboundPorts": strconv.Itoa(9000 + i%5)}
	})
	crowd.watch(t, 2*time.Second)
}

// TestLargestLists has a node whose pods have the longest lists that a runtime
// can list together: its answer ends at 16 MiB. The built guard has the memory
// of the chart's container.
func TestLargestLists(t *testing.T) {
	lab.RequireRoot(t)
	lab.RequireTime(t)
	const (
		annotations = 140 << 10 // bytes of each pod's
		container   = 128 << 20
		mostMemory  = 96 << 20
		mostTime    = 30 * time.Second // of a core: the time that passes depends on what else runs
		mostAtOnce  = 5 * time.Second
	)
	crowd := captureCrowd(t, 110, func(i int) map[string]string {
		return map[string]string{"traffic.sidecar.istio.io/excludeOutboundIPRanges": addresses(i, annotations)}
	})
	t.Setenv("GOMEMLIMIT", strconv.Itoa(container/2)) // as it sets itself in a container
	examined, resident := crowd.watch(t, 10*time.Second)
	if examined > mostTime {
		t.Errorf("the guard examined all pods with %s of a core, want %s at most", examined, mostTime)
	}
	if resident > mostMemory {
		t.Errorf("the guard held %d MiB, want %d at most", resident>>20, mostMemory>>20)
	}

	keeper, registry := crowd.node.keeperOf(t, crowd.node, guard.Settings{Policy: guard.ReportOnly})
	round := func(what string) {
		before, _ := usage(t, os.Getpid())
		keeper.Round(t.Context())
		after, _ := usage(t, os.Getpid())
		if took := after - before; took > mostAtOnce {
			t.Errorf("%s took %s of a core, want %s at most", what, took, mostAtOnce)
		}
	}
	for slices := 1; ; slices++ {
		round(fmt.Sprintf("slice %d", slices))
		if crowd.node.reads-crowd.node.unchanged == len(crowd.node.pods) { // then all have been examined
			break
		}
		if slices > len(crowd.node.pods) { // each examines one at least
			t.Fatalf("%d requests, %d of them unchanged, after %d slices", crowd.node.reads, crowd.node.unchanged, slices)
		}
	}
	expect(t, registry, map[terms.State]float64{terms.Captured: float64(len(crowd.node.pods))})
	round("a steady round")
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

// crowd are many captured pods, of a runtime that answers on a socket, and as the
// other tests have them.
type crowd struct {
	stub *criStub
	node *node
}

// watch runs the built guard for the crowd. It returns the time of a core in which it
// examined all pods, and the most memory that it held until then and for rounds after.
func (c crowd) watch(t *testing.T, round time.Duration) (examined time.Duration, resident int) {
	t.Helper()
	dir := t.TempDir()
	_, _ = c.node.serveIn(t, dir)
	command, address, stop := startGuard(t, dir, "--cri-socket", serveCRI(t, dir, c.stub), "--round", round.String())
	pods := len(c.stub.items)
	first := waitForCaptured(t, address, pods)
	examined, _ = usage(t, command.Process.Pid)
	for began := time.Now(); c.node.answered() < 3*pods; time.Sleep(50 * time.Millisecond) { // two rounds more
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("%d requests about %d pods", c.node.answered(), pods)
		}
	}
	used, resident := usage(t, command.Process.Pid)
	expectNothingKept(t, command.Process.Pid)
	stop()
	c.node.reads, c.node.unchanged = 0, 0
	t.Logf("%d pods: examined in %s, with %s of a core; then again with %s; %d MiB resident at most", pods,
		first.Round(10*time.Millisecond), examined, (used-examined)/2, resident>>20)
	return examined, resident
}

// expectNothingKept expects a guard to have no more threads and descriptors in namespaces of
// pods than one examination takes.
func expectNothingKept(t *testing.T, pid int) {
	t.Helper()
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
	lab.Check(t, err)
	var kept []string
	for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(10 * time.Millisecond) {
		kept = nil
		for _, pattern := range []string{"task/*/ns/net", "fd/*"} {
			paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/%s", pid, pattern))
			lab.Check(t, err)
			for _, path := range paths {
				if link, err := os.Readlink(path); err == nil && link != own && (strings.HasPrefix(link, "net:") || strings.Contains(link, "/netns/")) {
					kept = append(kept, path)
				}
			}
		}
		if len(kept) <= 2 { // one examination goes on
			return
		}
	}
	t.Errorf("the guard keeps %d namespaces: %q", len(kept), kept[:3])
}

// buildAgent builds the program of agent and guard.
func buildAgent(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "capture-cni-node")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "github.com/capture-cni/capture-cni/install/capture-cni-node")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// startGuard starts the built guard with this run directory, until stop is called or the
// test ends. It returns the address of its metrics.
func startGuard(t *testing.T, runDir string, flags ...string) (command *exec.Cmd, address string, stop func()) {
	t.Helper()
	address, err := lab.FreeAddress()
	lab.Check(t, err)
	command = exec.Command(buildAgent(t), append([]string{"guard", "--run-dir", runDir, "--state-dir", "/nonexistent", "--listen", address}, flags...)...)
	command.Stderr = os.Stderr
	lab.Check(t, command.Start())
	stop = sync.OnceFunc(func() { _ = command.Process.Signal(syscall.SIGTERM); _ = command.Wait() })
	t.Cleanup(stop)
	return command, address, stop
}

// waitForCaptured waits until the guard reports this many captured pods.
func waitForCaptured(t *testing.T, address string, pods int) (took time.Duration) {
	t.Helper()
	began := time.Now()
	for want := fmt.Sprintf("capture_cni_pods{mesh=\"istio\",state=\"captured\"} %d\n", pods); !strings.Contains(metrics(t, address), want); time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("not all pods are captured:\n%s", metrics(t, address))
		}
	}
	return time.Since(began)
}

// metrics are what the guard shows, once it does.
func metrics(t *testing.T, address string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
	lab.Check(t, err)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	lab.Check(t, err)
	return string(text)
}

// captureCrowd captures as many pods with these annotations.
func captureCrowd(t *testing.T, pods int, annotations func(i int) map[string]string) crowd {
	t.Helper()
	c := crowd{&criStub{netns: map[string]string{}}, newNode()}
	for i := range pods {
		name := fmt.Sprintf("web-%d", i)
		host := lab.StartHost(t)
		sandbox := cri.Sandbox{
			ID: name, Namespace: "shop", Name: name, UID: "6c1f8c3e-0b7a-4f0e-9d53-2f1f5a1d9f01", NetNS: host.Path(),
			Labels: map[string]string{"app": "web"}, Annotations: annotations(i),
		}
		sandbox.Annotations["sidecar.istio.io/status"] = "{}"
		pod := meshed(sandbox)
		c.node.sandboxes[name], c.node.pods[name] = sandbox, pod
		lab.Check(t, host.AddAddresses("lo", "192.0.2.2/32"))
		decision, err := lab.Decide(pod, config.DefaultSettings(), netip.MustParseAddr("192.0.2.2"))
		lab.Check(t, err)
		lab.Check(t, host.Do(func() error { return nftables.Backend{}.Apply(t.Context(), capture.Rules(decision.Intent)) }))
		c.stub.netns[name] = host.Path()
		c.stub.items = append(c.stub.items, &runtimeapi.PodSandbox{
			Id: name, State: runtimeapi.PodSandboxState_SANDBOX_READY, Annotations: pod.Annotations, Labels: sandbox.Labels,
			Metadata: &runtimeapi.PodSandboxMetadata{Namespace: "shop", Name: name, Uid: string(pod.UID)},
		})
	}
	return c
}

// criStub is as much of a runtime as the guard asks.
type criStub struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	items []*runtimeapi.PodSandbox
	netns map[string]string
}

func (c *criStub) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "stub", RuntimeVersion: "v1", RuntimeApiVersion: "v1"}, nil
}

func (c *criStub) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{}}, nil
}

func (c *criStub) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{Items: c.items}, nil
}

func (c *criStub) PodSandboxStatus(_ context.Context, asked *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	return &runtimeapi.PodSandboxStatusResponse{
		Status: &runtimeapi.PodSandboxStatus{
			Id: asked.PodSandboxId, State: runtimeapi.PodSandboxState_SANDBOX_READY, CreatedAt: 1,
			Metadata: &runtimeapi.PodSandboxMetadata{Namespace: "shop", Name: asked.PodSandboxId, Uid: "uid"},
		},
		Info: map[string]string{"info": fmt.Sprintf(`{"runtimeSpec":{"linux":{"namespaces":[{"type":"pid"},{"type":"network","path":%q}]}}}`, c.netns[asked.PodSandboxId])},
	}, nil
}

func (c *criStub) ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	return &runtimeapi.ListContainersResponse{}, nil
}

func serveCRI(t *testing.T, dir string, stub runtimeapi.RuntimeServiceServer) (socket string) {
	t.Helper()
	socket = filepath.Join(dir, "cri.sock")
	listener, err := net.Listen("unix", socket)
	lab.Check(t, err)
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, stub)
	go func() { _ = server.Serve(listener) }() // until Stop
	t.Cleanup(server.Stop)
	return socket
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
