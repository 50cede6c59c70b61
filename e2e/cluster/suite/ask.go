// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// Ask has a pod's application connect to a server, and returns the answers of
// the server and of every proxy in between.
func (n Namespace) Ask(t *testing.T, pod, network, server string, from ...string) []lab.Answer {
	t.Helper()
	hops, err := n.TryAsk(t.Context(), pod, network, server, from...)
	lab.Check(t, err)
	return hops
}

// TryAsk is Ask with an error for the caller.
func (n Namespace) TryAsk(ctx context.Context, pod, network, server string, from ...string) ([]lab.Answer, error) {
	args := append([]string{"--namespace", n.Name, "exec", pod, "--container", "app", "--", "/apps", "ask", network, server}, from...)
	out, err := n.suite.Kubectl(ctx, "", args...)
	if err != nil {
		return nil, err
	}
	hops, err := ParseHops(out)
	if err != nil {
		return nil, fmt.Errorf("%s asking %s: %w", pod, server, err)
	}
	return hops, nil
}

// ParseHops reads the answers of all hops, one a line.
func ParseHops(output string) (hops []lab.Answer, err error) {
	for line := range strings.Lines(output) {
		var hop lab.Answer
		if err := json.Unmarshal([]byte(line), &hop); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		hops = append(hops, hop)
	}
	return hops, nil
}

// Names returns the names of hops, in their order.
func Names(hops []lab.Answer) string {
	var all []string
	for _, hop := range hops {
		all = append(all, hop.Server)
	}
	return strings.Join(all, " ")
}

// Address joins an address and a port.
func Address(ip netip.Addr, port uint16) string { return netip.AddrPortFrom(ip, port).String() }
