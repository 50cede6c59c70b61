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
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

const crowd = 200

// TestCost runs the built guard on a node with 200 captured pods, and prints
// what it takes.
func TestCost(t *testing.T) {
	lab.RequireRoot(t)
	lab.RequireTime(t)
	dir := t.TempDir()
	agent := filepath.Join(dir, "capture-cni-node")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", agent, "github.com/capture-cni/capture-cni/install")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	api, err := kubeapi.Start()
	check(t, err)
	t.Cleanup(func() { _ = api.Close() })
	_, err = api.WriteKubeconfig(dir)
	check(t, err)
	socket := serveCRI(t, dir, captureCrowd(t, api))

	address, err := lab.FreeAddress()
	check(t, err)
	command := exec.Command(agent, "guard", "--cri-socket", socket, "--state-dir", dir, "--run-dir", dir, "--listen", address)
	command.Stderr = os.Stderr
	check(t, command.Start())
	t.Cleanup(func() { _ = command.Process.Signal(syscall.SIGTERM); _ = command.Wait() })
	first := time.Now()
	for want := fmt.Sprintf("capture_cni_pods{state=\"captured\"} %d\n", crowd); !strings.Contains(metrics(t, address), want); time.Sleep(50 * time.Millisecond) {
		if time.Since(first) > 2*time.Minute {
			t.Fatalf("not all pods are captured:\n%s", metrics(t, address))
		}
	}
	t.Logf("the first round took %s", time.Since(first).Round(10*time.Millisecond))
	before, _ := usage(t, command.Process.Pid)
	const watched = 40 * time.Second
	time.Sleep(watched)
	after, resident := usage(t, command.Process.Pid)
	t.Logf("%d pods: %.2f %% of a core, %.0f MiB resident", crowd, 100*(after-before).Seconds()/watched.Seconds(), float64(resident)/(1<<20))
}

// metrics are what the guard shows, once it does.
func metrics(t *testing.T, address string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/metrics", nil)
	check(t, err)
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	check(t, err)
	return string(text)
}

// captureCrowd makes the namespaces of as many captured pods.
func captureCrowd(t *testing.T, api *kubeapi.Server) *criStub {
	t.Helper()
	stub := &criStub{netns: map[string]string{}}
	for i := range crowd {
		name := fmt.Sprintf("web-%d", i)
		host := newHost(t)
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}, {Name: "istio-proxy"}}}}
		pod.Namespace, pod.Name, pod.UID = "shop", name, "6c1f8c3e-0b7a-4f0e-9d53-2f1f5a1d9f01"
		pod.Annotations = map[string]string{"sidecar.istio.io/status": "{}", "traffic.sidecar.istio.io/excludeInboundPorts": strconv.Itoa(9000 + i%5)}
		api.Put(pod)
		check(t, host.AddAddresses("lo", "192.0.2.2/32"))
		intent, _, err := capture.Decide(pod, capture.DefaultSettings(), []netip.Addr{netip.MustParseAddr("192.0.2.2")})
		check(t, err)
		check(t, host.Do(func() error { return netfilter.NFTables{}.Apply(t.Context(), capture.Rules(intent)) }))
		stub.netns[name] = host.Path()
		stub.items = append(stub.items, &runtimeapi.PodSandbox{
			Id: name, State: runtimeapi.PodSandboxState_SANDBOX_READY, Annotations: pod.Annotations, Labels: map[string]string{"app": "web"},
			Metadata: &runtimeapi.PodSandboxMetadata{Namespace: "shop", Name: name, Uid: string(pod.UID)},
		})
	}
	return stub
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

func serveCRI(t *testing.T, dir string, stub runtimeapi.RuntimeServiceServer) (socket string) {
	t.Helper()
	socket = filepath.Join(dir, "cri.sock")
	listener, err := net.Listen("unix", socket)
	check(t, err)
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, stub)
	go func() { _ = server.Serve(listener) }() // until Stop
	t.Cleanup(server.Stop)
	return socket
}

// usage is a process' time on the processors, and its resident memory in bytes.
// See proc_pid_stat(5); a tick is a hundredth of a second.
func usage(t *testing.T, pid int) (used time.Duration, resident int) {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	check(t, err)
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	number := func(i int) int {
		n, err := strconv.Atoi(fields[i])
		check(t, err)
		return n
	}
	return time.Duration(number(11)+number(12)) * 10 * time.Millisecond, number(21) * os.Getpagesize()
}
