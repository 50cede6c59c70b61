// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"net/netip"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestIstioValidation does what istio-validation does, with the proxy's uid: it listens
// on localhost at the proxy's inbound port, connects from localhost to another address
// of lo, and compares the original destination.
func TestIstioValidation(t *testing.T) {
	istio := lab.Owner{UID: 1337, GID: 1337}
	for _, test := range []struct {
		name             string
		addresses        []string
		annotations, env map[string]string
		local, from, to  string
	}{
		{"IPv4", []string{ipv4}, nil, nil, "127.0.0.1:15006", "127.0.0.1", "127.0.0.6:15002"},
		{"IPv6", []string{ipv6}, nil, nil, "[::1]:15006", "::1", "[::6]:15002"},
		{"both", []string{ipv4, ipv6}, nil, dualStack, "[::1]:15006", "::1", "[::6]:15002"},
		{"TPROXY", []string{ipv4}, transparent, nil, "127.0.0.1:15006", "127.0.0.1", "127.0.0.6:15002"},
		{"DNS", []string{ipv4}, nil, with(nil, "ISTIO_META_DNS_CAPTURE"), "127.0.0.1:15006", "127.0.0.1", "127.0.0.6:15002"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			forEachBackend(t, func(t *testing.T, backend config.Backend) {
				p := newPod(t, test.addresses...)
				p.apply(t, p.rules(t, test.annotations, test.env), backend)
				server, err := p.ServeProxy(istio, "tcp", test.local, "validation")
				lab.Check(t, err)
				t.Cleanup(func() { _ = server.Close() })
				answer, err := p.Ask(istio, "tcp", test.from, test.to)
				lab.Check(t, err)
				if want := netip.MustParseAddrPort(test.to); answer.OriginalDst != want {
					t.Errorf("the original destination is %s, want %s", answer.OriginalDst, want)
				}
			})
		})
	}
}
