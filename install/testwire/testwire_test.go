// SPDX-License-Identifier: Apache-2.0

package testwire

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMessageFits encodes the observations of both families with the longest addresses and
// faults, and reads them again.
func TestMessageFits(t *testing.T) {
	t.Parallel()
	long := netip.MustParseAddr("2001:1db8:1111:2222:3333:4444:5555:6666")
	to := netip.AddrPortFrom(long, 65535)
	var observations []Observation
	for range 4 {
		observations = append(observations, Observation{To: to, Lines: []Line{
			{By: Proxy(Client, Outbound), Client: long, Original: to}, {By: Proxy(Server, Inbound), Client: long, Original: to, Fault: strings.Repeat("x", 1000)},
		}, Fault: strings.Repeat("y", 1000)})
	}
	for range 4 {
		to := netip.MustParseAddrPort("255.255.255.255:65535")
		observations = append(observations, Observation{To: to, Lines: []Line{
			{By: Proxy(Client, Outbound), Client: to.Addr(), Original: to}, {By: Proxy(Server, Inbound), Client: to.Addr(), Original: to}, {By: Application, Client: to.Addr()},
		}})
	}
	message, err := Encode(observations)
	if err != nil {
		t.Fatal(err)
	}
	read, err := Decode(string(message))
	if err != nil || read[0].Answered() || !read[7].Answered() || len(message) > 4096 {
		t.Errorf("%d bytes, %v: %+v", len(message), err, read)
	}
	if diff := cmp.Diff(observations[7], read[7], cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	if _, err := Encode(append(observations, observations...)); err == nil || !strings.Contains(err.Error(), "at most 4096") {
		t.Errorf("too many: %v", err)
	}
	if _, err := Decode("cut"); err == nil {
		t.Error("no error for a message that is cut")
	}
}
