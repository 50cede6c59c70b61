// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// program is one of a pod's programs in TestCaptured: a proxy, a client of the servers or else the application.
type program struct {
	lab.Owner
	Proxy   *Proxy
	Servers []netip.Addr
}

const (
	programEnv  = "CAPTURE_CNI_TEST_PROGRAM"
	application = 8080 // port
	closed      = 8081 // port at which nothing listens
	refused     = "connection refused"
)

// TestMain runs a program of TestCaptured if the environment has one.
func TestMain(m *testing.M) {
	if os.Getenv(programEnv) == "" {
		os.Exit(m.Run())
	}
	var p program
	err := json.Unmarshal([]byte(os.Getenv(programEnv)), &p)
	if err = errors.Join(err, syscall.Setgid(p.GID), syscall.Setuid(p.UID), p.run()); err != nil {
		panic(err)
	}
}

func (p program) run() error {
	ctx, stop := context.WithCancel(context.Background())
	go func() { // the end of the test, however it ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	switch {
	case p.Proxy != nil:
		return p.Proxy.Run(ctx)
	case p.Servers == nil:
		return Serve(ctx, []uint{application})
	}
	var to []netip.AddrPort
	for _, server := range p.Servers {
		to = append(to, netip.AddrPortFrom(server, application))
	}
	observations := Connect(ctx, to, time.Hour)
	for _, server := range p.Servers {
		observations = append(observations, try(ctx, netip.AddrPortFrom(server, closed)))
	}
	return json.NewEncoder(os.Stdout).Encode(observations)
}

// start starts a program in a pod.
func (p program) start(t *testing.T, pod *lab.Host, stdout io.Writer) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(p)
	lab.Check(t, err)
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), programEnv+"="+string(text))
	command.Stdout, command.Stderr = stdout, os.Stderr
	stdin, err := command.StdinPipe()
	lab.Check(t, errors.Join(err, pod.Do(command.Start)))
	t.Cleanup(func() {
		_ = stdin.Close()
		if command.ProcessState == nil {
			lab.Check(t, command.Wait())
		}
	})
	return command
}

// TestCaptured connects two pods with the plugin's rules. Both proxies and the application say where each connection
// comes from and where it went to, or why it did not.
func TestCaptured(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	app, proxy := lab.Owner{UID: 1000, GID: 1000}, lab.Owner{UID: 1337, GID: 1337}
	for mode, tt := range map[string]struct {
		proxy lab.Owner
		seen  []netip.Addr // by the application
	}{
		"REDIRECT": {proxy, []netip.Addr{capture.ProxySourceIPv4.Addr(), capture.ProxySourceIPv6.Addr()}},
		"TPROXY":   {lab.Owner{GID: proxy.GID}, addressesOf(t, "10.0.0.2/24", "fd00::2/64")},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			client, server := lab.StartHost(t), lab.StartHost(t)
			clients, servers := []string{"10.0.0.2/24", "fd00::2/64"}, []string{"10.0.0.1/24", "fd00::1/64"}
			lab.Check(t, errors.Join(client.AddAddresses("lo"), server.AddAddresses("lo"), lab.Link(
				lab.Interface{Host: client, Name: "eth0", Addresses: clients}, lab.Interface{Host: server, Name: "eth0", Addresses: servers},
			), client.WaitForIPv6(), server.WaitForIPv6()))
			capturePod(t, client, mode, clients)
			capturePod(t, server, mode, servers)
			for pod, host := range map[string]*lab.Host{report.TestClient: client, report.TestServer: server} {
				program{tt.proxy, &Proxy{pod, 15001, 15006, mode == "TPROXY"}, nil}.start(t, host, nil)
			}
			program{Owner: app}.start(t, server, nil)
			var got, want []report.TestObservation
			var stdout bytes.Buffer
			lab.Check(t, program{app, nil, addressesOf(t, servers...)}.start(t, client, &stdout).Wait())
			lab.Check(t, json.Unmarshal(stdout.Bytes(), &got))
			for _, port := range []uint16{application, closed} {
				for i, from := range addressesOf(t, clients...) {
					o := report.TestObservation{To: netip.AddrPortFrom(addressesOf(t, servers...)[i], port)}
					o.Lines = []report.TestLine{
						{By: report.TestProxy(report.TestClient, "outbound"), Client: from, Original: o.To},
						{By: report.TestProxy(report.TestServer, "inbound"), Client: from, Original: o.To},
						{By: report.TestApplication, Client: tt.seen[i]},
					}
					if port == closed {
						o.Fault, o.Lines = "the connection ended before the application answered", o.Lines[:2]
						o.Lines[1].Fault = refused
					}
					want = append(want, o)
				}
			}
			faults := cmp.Comparer(func(a, b string) bool {
				return a == b || strings.HasSuffix(a, ": connect: "+b) || strings.HasSuffix(b, ": connect: "+a)
			})
			if diff := cmp.Diff(want, got, faults, addresses); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func addressesOf(t *testing.T, prefixes ...string) (addresses []netip.Addr) {
	for _, text := range prefixes {
		prefix, err := netip.ParsePrefix(text)
		lab.Check(t, err)
		addresses = append(addresses, prefix.Addr())
	}
	return addresses
}

// capturePod applies the plugin's rules to a pod.
func capturePod(t *testing.T, host *lab.Host, mode string, prefixes []string) {
	t.Helper()
	pod := &corev1.Pod{}
	pod.Annotations = map[string]string{"sidecar.istio.io/status": "{}", "sidecar.istio.io/interceptionMode": mode}
	pod.Spec.Containers = []corev1.Container{{
		Name: "istio-proxy", Args: []string{"proxy", "sidecar"}, Env: []corev1.EnvVar{{Name: "ISTIO_DUAL_STACK", Value: "true"}},
	}}
	decision, err := lab.Decide(pod, config.DefaultSettings(), addressesOf(t, prefixes...)...)
	lab.Check(t, err)
	netns, err := podnet.Open(t.Context(), host.Path())
	lab.Check(t, err)
	defer netns.Close()
	lab.Check(t, netns.Apply(t.Context(), capture.Rules(decision.Intent), config.NFTables))
}
