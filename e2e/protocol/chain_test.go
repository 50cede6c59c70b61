// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// conflist returns a chain with a real interface plugin. The bridge plugin creates its
// bridge in the runtime's network namespace: one of the test, not the machine's.
func conflist(t *testing.T, n node, version string) []byte {
	t.Helper()
	return fmt.Appendf(nil, `{
  "cniVersion": %q, "name": "chain",
  "plugins": [
    {"type": "bridge", "bridge": "br0", "isDefaultGateway": true,
     "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "192.0.2.0/24"}], [{"subnet": "2001:db8:2::/64"}]]}},
    {"type": "capture-cni", "kubeconfig": %q, "lookupTimeout": "20s", "ipv6": "always",
     "capabilities": {"io.kubernetes.cri.pod-annotations": true}}
  ]
}`, version, t.TempDir(), n.kubeconfig)
}

// machine is the runtime's host.
type machine struct {
	*lab.Host
	runtime *libcni.CNIConfig
	list    *libcni.NetworkConfigList
}

// TestChain executes all verbs of a conflist for two pods.
func TestChain(t *testing.T) {
	t.Parallel()
	for _, v := range versions {
		t.Run(v, func(t *testing.T) {
			m, _ := newChain(t, v)
			for _, pod := range []string{"web", "batch"} {
				m.executeVerbs(t, v, pod)
			}
		})
	}
}

// newChain serves the API on the machine's loopback.
func newChain(t *testing.T, v string) (machine, node) {
	t.Helper()
	lab.RequireRoot(t)
	host := lab.StartHost(t)
	lab.Check(t, host.AddAddresses("lo"))
	n := newNodeOn(t, host)
	parsed, err := libcni.ConfListFromBytes(conflist(t, n, v))
	lab.Check(t, err)
	return machine{host, libcni.NewCNIConfigWithCacheDir([]string{bin}, t.TempDir(), nil), parsed}, n
}

func (m machine) executeVerbs(t *testing.T, v, pod string) {
	t.Helper()
	sandbox := lab.StartHost(t)
	call := &libcni.RuntimeConf{
		ContainerID: pod, NetNS: sandbox.Path(), IfName: "eth0",
		Args: [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", pod}, {"K8S_POD_UID", uid}},
	}
	since := func(from string) bool {
		ok, err := version.GreaterThanOrEqualTo(v, from)
		lab.Check(t, err)
		return ok
	}
	lab.Check(t, m.Do(func() error {
		result, err := m.runtime.AddNetworkList(t.Context(), m.list, call)
		if err != nil {
			return err
		}
		converted, err := current.NewResultFromResult(result)
		if err == nil && len(converted.IPs) != 2 {
			err = fmt.Errorf("the interface plugin's addresses are not in the result: %v", result)
		}
		return err
	}))
	expectCaptured(t, sandbox, pod == "web")
	m.traffic(t, sandbox, pod == "web")
	lab.Check(t, m.Do(func() error {
		if since("0.4.0") {
			if err := m.runtime.CheckNetworkList(t.Context(), m.list, call); err != nil {
				return err
			}
		}
		if since("1.1.0") {
			if err := m.runtime.GetStatusNetworkList(t.Context(), m.list); err != nil {
				return err
			}
			if err := m.runtime.GCNetworkList(t.Context(), m.list, &libcni.GCArgs{}); err != nil {
				return err
			}
		}
		return m.runtime.DelNetworkList(t.Context(), m.list, call)
	}))
	expectCaptured(t, sandbox, false)
}

// traffic expects connections over the bridge to be captured or not.
func (m machine) traffic(t *testing.T, sandbox *lab.Host, captured bool) {
	t.Helper()
	for host, servers := range map[*lab.Host]map[string]string{
		sandbox: {":15001": "outbound", ":15006": "inbound", ":8080": "direct"}, m.Host: {":8081": "direct"},
	} {
		for address, name := range servers {
			server, err := host.Serve("tcp", address, name)
			lab.Check(t, err)
			defer server.Close()
		}
	}
	want := map[bool]string{true: "outbound", false: "direct"}[captured]
	for _, gateway := range []string{"192.0.2.1", "[2001:db8:2::1]"} {
		answer, err := sandbox.Ask(lab.Owner{UID: 1000, GID: 1000}, "tcp", "", gateway+":8081")
		if err != nil || answer.Server != want {
			t.Errorf("to %s: answered by %q, want %q (%v)", gateway, answer.Server, want, err)
		}
	}
}

// TestCnitool executes the chain with cnitool.
func TestCnitool(t *testing.T) {
	t.Parallel()
	m, n := newChain(t, "1.0.0")
	dir := t.TempDir()
	lab.Check(t, os.WriteFile(filepath.Join(dir, "10-chain.conflist"), conflist(t, n, "1.0.0"), 0o600))
	sandbox := lab.StartHost(t)
	for _, verb := range []string{"add", "check", "del", "del"} {
		var o outcome
		lab.Check(t, m.Do(func() error {
			o = cnitool(t, dir, verb, sandbox.Path())
			return nil
		}))
		if o.status != 0 {
			t.Fatalf("%s: %s%s", verb, o.stdout, o.stderr)
		}
		expectCaptured(t, sandbox, verb == "add" || verb == "check")
	}
	n.Delete("shop", "web")
	shortTimeout := strings.Replace(string(conflist(t, n, "1.0.0")), `"20s"`, `"1s"`, 1)
	lab.Check(t, os.WriteFile(filepath.Join(dir, "10-chain.conflist"), []byte(shortTimeout), 0o600))
	lab.Check(t, m.Do(func() error {
		if o := cnitool(t, dir, "add", sandbox.Path()); o.status == 0 || !strings.Contains(o.stdout+o.stderr, "looking up pod shop/web") {
			t.Errorf("status %d: %s%s", o.status, o.stdout, o.stderr)
		}
		return nil
	}))
}
