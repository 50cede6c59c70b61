// SPDX-License-Identifier: Apache-2.0

package report

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
	var observations []TestObservation
	for range 4 {
		observations = append(observations, TestObservation{To: to, Lines: []TestLine{
			{By: TestProxy(TestClient, "outbound"), Client: long, Original: to}, {By: TestProxy(TestServer, "inbound"), Client: long, Original: to, Fault: strings.Repeat("x", 1000)},
		}, Fault: strings.Repeat("y", 1000)})
	}
	for range 4 {
		to := netip.MustParseAddrPort("255.255.255.255:65535")
		observations = append(observations, TestObservation{To: to, Lines: []TestLine{
			{By: TestProxy(TestClient, "outbound"), Client: to.Addr(), Original: to}, {By: TestProxy(TestServer, "inbound"), Client: to.Addr(), Original: to}, {By: TestApplication, Client: to.Addr()},
		}})
	}
	message, err := EncodeTest(observations)
	if err != nil {
		t.Fatal(err)
	}
	read, err := DecodeTest(string(message))
	if err != nil || read[0].Answered() || (TestObservation{}).Answered() || !read[7].Answered() || len(message) > 4096 {
		t.Errorf("%d bytes, %v: %+v", len(message), err, read)
	}
	if diff := cmp.Diff(observations[7], read[7], cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	if read[0].Lines[1].Fault != strings.Repeat("x", 100)+"…" || read[0].Fault != strings.Repeat("y", 100)+"…" {
		t.Errorf("cut to %q and %q", read[0].Lines[1].Fault, read[0].Fault)
	}
	if _, err := EncodeTest(append(observations, observations...)); err == nil || !strings.HasPrefix(err.Error(), "encoding the observations: they have ") {
		t.Errorf("too many: %v", err)
	}
	if _, err := DecodeTest("cut"); err == nil || !strings.HasPrefix(err.Error(), "reading the observations of the pod client: ") {
		t.Errorf("a message that is cut: %v", err)
	}
}

// TestLimits keeps a fault of 100 bytes and encodes a message of 4096.
func TestLimits(t *testing.T) {
	t.Parallel()
	fault := strings.Repeat("x", 100)
	small, err := EncodeTest([]TestObservation{{Fault: fault, Lines: []TestLine{{}}}})
	if err != nil || !strings.Contains(string(small), fault+`"`) {
		t.Errorf("%s, %v", small, err)
	}
	for size, fits := range map[int]bool{4096: true, 4097: false} {
		message, err := EncodeTest([]TestObservation{{Fault: fault, Lines: []TestLine{{By: strings.Repeat("x", size-len(small))}}}})
		if (err == nil) != fits || (len(message) == size) != fits {
			t.Errorf("%d bytes: %d, %v", size, len(message), err)
		}
	}
}
