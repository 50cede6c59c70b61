// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

const (
	ipv4 = "10.77.0.2/24"
	ipv6 = "fd77::2/64"
)

var (
	transparent = map[string]string{"sidecar.istio.io/interceptionMode": "TPROXY"}
	dualStack   = with(nil, "ISTIO_DUAL_STACK")
)

// with returns env with more variables, each true.
func with(env map[string]string, names ...string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, env)
	for _, name := range names {
		all[name] = "true"
	}
	return all
}

// pod is linked to a node, its router.
type pod struct {
	*lab.Host
	node      *lab.Host
	addresses []string
}

func newPod(t *testing.T, addresses ...string) pod {
	t.Helper()
	p := pod{lab.StartHost(t), lab.StartHost(t), addresses}
	lab.Check(t, p.AddAddresses("lo"))
	var gateways []string
	for _, address := range addresses {
		gateways = append(gateways, strings.Replace(address, "2/", "1/", 1))
	}
	lab.Check(t, lab.Link(lab.Interface{Host: p.Host, Name: "eth0", Addresses: addresses}, lab.Interface{Host: p.node, Name: "veth0", Addresses: gateways}))
	for _, gateway := range gateways {
		lab.Check(t, p.AddDefaultRoute(netip.MustParsePrefix(gateway).Addr().String()))
	}
	lab.Check(t, p.node.Do(func() error {
		for _, key := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
			if err := os.WriteFile("/proc/sys/net/"+key, []byte("1"), 0); err != nil {
				return err
			}
		}
		return nil
	}))
	lab.Check(t, errors.Join(p.WaitForIPv6(), p.node.WaitForIPv6()))
	return p
}

// rules returns the plugin's rules for an injected pod.
func (p pod) rules(t *testing.T, annotations, env map[string]string) capture.Ruleset {
	t.Helper()
	return p.rulesBy(t, config.DefaultSettings(), annotations, env)
}

func (p pod) rulesBy(t *testing.T, settings config.Settings, annotations, env map[string]string) capture.Ruleset {
	t.Helper()
	injected := &corev1.Pod{}
	injected.Annotations = map[string]string{"sidecar.istio.io/status": "{}"}
	maps.Copy(injected.Annotations, annotations)
	sidecar := corev1.Container{Name: "istio-proxy", Args: []string{"proxy", "sidecar"}}
	for name, value := range env {
		sidecar.Env = append(sidecar.Env, corev1.EnvVar{Name: name, Value: value})
	}
	injected.Spec.Containers = []corev1.Container{sidecar}
	var addresses []netip.Addr
	for _, address := range p.addresses {
		addresses = append(addresses, netip.MustParsePrefix(address).Addr())
	}
	decision, err := lab.Decide(injected, settings, addresses...)
	lab.Check(t, err)
	return capture.Rules(decision.Intent)
}

// withoutInbound omits the rule that redirects the pod's calls of itself to the inbound
// port.
func withoutInbound(t *testing.T, p pod) capture.Ruleset {
	rs := p.rules(t, nil, dualStack)
	for i, chain := range rs.Chains {
		if chain.Table == capture.NAT && chain.Name == "ISTIO_PROXY" {
			rs.Chains[i].Rules = chain.Rules[:len(chain.Rules)-1]
			return rs
		}
	}
	t.Fatal("no chain ISTIO_PROXY")
	return rs
}

// otherPorts redirect to ports on which no process listens.
func otherPorts(t *testing.T, p pod) capture.Ruleset {
	settings := config.DefaultSettings()
	settings.Mesh.OutboundPort, settings.Mesh.InboundPort = 25001, 25006
	return p.rulesBy(t, settings, nil, dualStack)
}

func (p pod) apply(t *testing.T, rs capture.Ruleset, backend config.Backend) {
	t.Helper()
	netns, err := podnet.Open(t.Context(), p.Path())
	lab.Check(t, err)
	defer netns.Close()
	lab.Check(t, netns.Apply(t.Context(), rs, backend))
}

func forEachBackend(t *testing.T, test func(t *testing.T, backend config.Backend)) {
	t.Helper()
	lab.RequireRoot(t)
	for _, backend := range []config.Backend{config.NFTables, config.IPTablesNFT, config.IPTablesLegacy} {
		t.Run(string(backend), func(t *testing.T) {
			t.Parallel()
			test(t, backend)
		})
	}
}

// nft runs nft in a host's namespace.
func nft(t *testing.T, host *lab.Host, script string, args ...string) []byte {
	t.Helper()
	var out []byte
	lab.Check(t, host.Do(func() (err error) {
		command := exec.CommandContext(t.Context(), "nft", args...)
		command.Stdin = strings.NewReader(script)
		if out, err = command.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}))
	return out
}

// packets returns the value of a counter in table seen.
func packets(t *testing.T, host *lab.Host, counter string) int {
	t.Helper()
	var listed struct {
		NFTables []struct{ Counter struct{ Packets int } }
	}
	lab.Check(t, json.Unmarshal(nft(t, host, "", "-j", "list", "counter", "inet", "seen", counter), &listed))
	sum := 0
	for _, object := range listed.NFTables {
		sum += object.Counter.Packets
	}
	return sum
}
