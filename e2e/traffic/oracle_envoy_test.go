// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"errors"
	"net"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// envoyWorld is a pod with Envoy as its sidecar, captured in a mode, and what its peer serves.
func envoyWorld(t *testing.T, backend config.Backend, mode string) (world, *lab.Envoy) {
	t.Helper()
	w := newLinks(t)
	owner := proxy
	if mode == "TPROXY" {
		owner = proxyGID // it needs a capability, so only its group tells it from the application
	}
	netns := open(t, w.pod, backend)
	lab.Check(t, netns.Apply(decide(t, injected(map[string]string{"sidecar.istio.io/interceptionMode": mode}, nil), dualStack())))
	lab.Check(t, netns.Close())
	return w, lab.StartEnvoy(t, w.pod, owner, mode == "TPROXY")
}

// forEachEnvoy runs a test with each backend in both modes.
func forEachEnvoy(t *testing.T, test func(t *testing.T, w world, envoy *lab.Envoy, mode string)) {
	t.Helper()
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		for _, mode := range modes {
			t.Run(mode, func(t *testing.T) {
				w, envoy := envoyWorld(t, backend, mode)
				test(t, w, envoy, mode)
			})
		}
	})
}

// accepts expects a function to make one connection to each of these listeners of Envoy.
func accepts(t *testing.T, envoy *lab.Envoy, outbound, inbound int, connect func() error) {
	t.Helper()
	before := [2]int{envoy.Accepted("outbound"), envoy.Accepted("inbound")}
	lab.Check(t, connect())
	if got := [2]int{envoy.Accepted("outbound") - before[0], envoy.Accepted("inbound") - before[1]}; got != [2]int{outbound, inbound} {
		t.Errorf("Envoy accepted %d outbound and %d inbound connections, want %d and %d", got[0], got[1], outbound, inbound)
	}
}

// TestOracleEnvoy sends connections of each kind, whose servers speak first, through Envoy.
func TestOracleEnvoy(t *testing.T) {
	t.Parallel()
	forEachEnvoy(t, func(t *testing.T, w world, envoy *lab.Envoy, mode string) {
		w.serve(t, w.peer, "tcp", 80, direct)
		w.serve(t, w.pod, "tcp", 9080, direct)
		for _, f := range bothFamilies {
			client := map[string]string{"REDIRECT": proxySource[f], "TPROXY": external[f]}[mode]
			for _, tt := range []struct {
				name              string
				from              *lab.Host
				by                lab.Owner
				to, client        string
				outbound, inbound int
			}{
				{"outbound", w.pod, app, net.JoinHostPort(external[f], "80"), podIP[f], 1, 0},
				{"inbound", w.peer, app, net.JoinHostPort(podIP[f], "9080"), client, 0, 1},
				{"a Service that leads back to the pod", w.pod, app, net.JoinHostPort(serviceVIP[f], "9080"), "", 1, 1},
				{"within the pod", w.pod, app, net.JoinHostPort(podIP[f], "9080"), podIP[f], 0, 0},
			} {
				accepts(t, envoy, tt.outbound, tt.inbound, func() error {
					answer, err := tt.from.Ask(tt.by, "tcp", "", tt.to)
					if got := answer.Client.Addr().Unmap().String(); err == nil && (answer.Server != direct || tt.client != "" && got != tt.client) {
						err = errors.New(tt.name + ": " + answer.Server + " answers, and sees as its client " + got)
					}
					return err
				})
			}
		}
	})
}
