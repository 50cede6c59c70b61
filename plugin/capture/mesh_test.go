// SPDX-License-Identifier: Apache-2.0

package capture_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/nftables"
)

// TestAnotherMesh captures a pod of a mesh that is one value in a file of the tests, and sends
// packets: no other place of the package knows a mesh.
func TestAnotherMesh(t *testing.T) {
	capture.AddMadeUpMesh(t)
	pod := capture.Pod{Containers: []capture.Container{{Name: "app", UID: capture.ID{Number: 1000}}, {Name: "made-up-proxy"}}}.
		With(nil, map[string]string{"made-up.example/injected": "yes", "made-up.example/skip-outbound-ports": "81", "other": "x"})
	if len(pod.Annotations) != 2 || !capture.IsProxy("made-up-proxy") {
		t.Errorf("kept are %v", pod.Annotations)
	}
	settings := config.DefaultSettings()
	settings.Meshes = append(settings.Meshes, capture.MadeUp)
	decision, err := capture.Decide(pod, settings)
	lab.Check(t, err)
	decision, err = decision.At([]netip.Addr{netip.MustParseAddr("192.0.2.2")}, nil)
	lab.Check(t, err)
	if decision.Exemption.Cause != "" {
		t.Fatal(decision.Exemption)
	}

	host, peer := lab.StartHost(t), lab.StartHost(t)
	lab.Check(t, errors.Join(host.AddAddresses("lo"), lab.Link(
		lab.Interface{Host: host, Name: "eth0", Addresses: []string{"192.0.2.2/24"}},
		lab.Interface{Host: peer, Name: "eth0", Addresses: []string{"192.0.2.1/24"}},
	)))
	host.Within(t, func() error { return nftables.Backend{}.Apply(t.Context(), decision.Rules) })
	serve := func(h *lab.Host, address, name string) {
		server, err := h.Serve("tcp", address, name)
		lab.Check(t, err)
		t.Cleanup(func() { _ = server.Close() })
	}
	serve(host, ":4000", "proxy's inbound port")
	serve(host, ":4001", "proxy's outbound port")
	serve(host, ":8080", "application")
	serve(peer, ":80", "peer")
	serve(peer, ":81", "peer")
	for _, probe := range []struct {
		what     string
		from     *lab.Host
		uid      int
		to, want string
	}{
		{"what arrives", peer, 1000, "192.0.2.2:8080", "proxy's inbound port"},
		{"what the application sends", host, 1000, "192.0.2.1:80", "proxy's outbound port"},
		{"to a skipped port", host, 1000, "192.0.2.1:81", "peer"},
		{"what the proxy sends", host, 4000, "192.0.2.1:80", "peer"},
	} {
		answer, err := probe.from.Ask(lab.Owner{UID: probe.uid, GID: probe.uid}, "tcp", "", probe.to)
		if err != nil || answer.Server != probe.want {
			t.Errorf("%s reaches %q, want %q: %v", probe.what, answer.Server, probe.want, err)
		}
	}
}
