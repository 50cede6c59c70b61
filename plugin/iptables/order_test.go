// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestOrderOfFamilies wants the stamp in IPv4's nat table to be committed last: it proves
// that all rules are there.
func TestOrderOfFamilies(t *testing.T) {
	t.Parallel()
	host := lab.StartHost(t)
	directory := t.TempDir()
	input := filepath.Join(directory, "input")
	b := Backend{map[capture.Family]programs{}}
	for _, family := range []capture.Family{capture.IPv4, capture.IPv6} {
		restore := filepath.Join(directory, string(family)+"-restore")
		script := fmt.Sprintf("#!/bin/sh\n(echo '*%s'; cat) >> %s\n", family, input)
		if err := lab.WriteProgram(restore, []byte(script)); err != nil {
			t.Fatal(err)
		}
		b.programs[family] = programs{variant: config.IPTablesNFT, restore: restore}
	}
	rs := capture.Rules(capture.Intent{
		Mesh: config.Istio,
		IPv6: capture.Captured, Transparent: true, CaptureDNS: true, DropInvalid: true, OutboundPort: 15001, InboundPort: 15006, DNSPort: 15053,
		InboundPorts: capture.Everything[uint16](), OutboundRanges: capture.Everything[netip.Prefix](),
	})
	if err := host.Do(func() error { return b.Apply(t.Context(), rs) }); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(input)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for line := range strings.Lines(string(text)) {
		if table, ok := strings.CutPrefix(line, "*"); ok {
			order = append(order, strings.TrimSpace(table))
		}
	}
	six, four := slices.Index(order, string(capture.IPv6)), slices.Index(order, string(capture.IPv4))
	if six != 0 || four < 3 || order[len(order)-1] != string(capture.NAT) || order[four-1] != string(capture.NAT) {
		t.Errorf("committed in the order %q", order)
	}
	if last := strings.LastIndex(string(text), "*nat"); !strings.Contains(string(text[last:]), rs.Stamp()) {
		t.Error("the table that comes last has no stamp")
	}
}
