// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/capture-cni/capture-cni/install/trace"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestPacketFlags has every flag that describes a packet, and refuses each without --to.
func TestPacketFlags(t *testing.T) {
	t.Parallel()
	for _, name := range packetFlagNames {
		flags := pflag.NewFlagSet("explain", pflag.ContinueOnError)
		var packet packetFlags
		packet.declare(flags, "eth0")
		value := map[string]string{"udp": "true", "ping": "true", "in": "true", "mark": "1337"}[name]
		if err := flags.Set(name, value); err != nil {
			t.Errorf("--%s: %v", name, err)
		}
		if _, err := packet.asked(flags); err == nil || !strings.Contains(err.Error(), "--"+name) {
			t.Errorf("--%s without --to: %v", name, err)
		}
	}
}

// TestPing has an address and no port.
func TestPing(t *testing.T) {
	t.Parallel()
	for to, want := range map[string]capture.Protocol{
		"10.1.2.3": capture.ICMP, "::ffff:10.1.2.3": capture.ICMP, "2001:db8::1": capture.ICMPv6, "10.1.2.3:80": "", "fe80::1%eth0": "", "web": "",
	} {
		packet, err := (&packetFlags{to: to, ping: true}).packet()
		if want == "" && (err == nil || !strings.Contains(err.Error(), "an IP address without a port")) || want != "" && (err != nil || packet.Protocol != want) {
			t.Errorf("%s: got %+v, %v, want %s", to, packet, err, want)
		}
	}
	if _, err := (&packetFlags{to: "10.1.2.3", from: "10.1.2.4:5", ping: true}).packet(); err == nil || !strings.Contains(err.Error(), "without a port") {
		t.Errorf("a source with a port: got %v", err)
	}
	if _, err := (&packetFlags{to: "10.1.2.3", ping: true, udp: true}).packet(); err == nil || !strings.Contains(err.Error(), "--ping with --udp") {
		t.Errorf("--ping with --udp: got %v", err)
	}
}

// TestPodNames are those of a namespace and a pod.
func TestPodNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "web", "/", "/web", "shop/"} {
		command := explainCommand(&options{})
		command.SilenceUsage, command.SilenceErrors = true, true
		command.SetArgs([]string{name})
		if err := command.Execute(); err == nil || !strings.Contains(err.Error(), "expected NAMESPACE/POD") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestExplainFlags names a flag with an unknown value.
func TestExplainFlags(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{
		"--scope=nodes": `--scope is "nodes": expected node, pods or all`,
		"--output=xml":  `--output is "xml": expected text or json`,
	} {
		command := explainCommand(&options{})
		command.SilenceUsage, command.SilenceErrors = true, true
		command.SetArgs([]string{"shop/web", flag})
		if err := command.Execute(); fmt.Sprint(err) != want {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

// TestUsualInterface is lo for what stays in the pod: its own addresses, and what policy
// routing sends there.
func TestUsualInterface(t *testing.T) {
	t.Parallel()
	own := []netip.Addr{netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("2001:db8::7")}
	for name, tt := range map[string]struct {
		to      string
		inbound bool
		mark    uint32
		ipv6    capture.Treatment
		want    string
	}{
		"another host":               {to: "10.1.2.3:80", want: "eth0"},
		"loopback":                   {to: "127.0.0.1:80", want: "lo"},
		"loopback of IPv6":           {to: "[::1]:80", want: "lo"},
		"its own address":            {to: "10.0.0.7:80", want: "lo"},
		"its own address of IPv6":    {to: "[2001:db8::7]:80", want: "lo"},
		"from another host":          {to: "10.0.0.7:80", inbound: true, want: "eth0"},
		"the mark":                   {to: "10.1.2.3:80", mark: 1337, want: "lo"},
		"another mark":               {to: "10.1.2.3:80", mark: 1338, want: "eth0"},
		"the mark, IPv6 captured":    {to: "[2001:db8::9]:80", mark: 1337, ipv6: capture.Captured, want: "lo"},
		"the mark, IPv6 left alone":  {to: "[2001:db8::9]:80", mark: 1337, want: "eth0"},
		"the mark, from elsewhere":   {to: "10.1.2.3:80", inbound: true, mark: 1337, want: "eth0"},
		"the mark, with IPv6, as v4": {to: "10.1.2.3:80", mark: 1337, ipv6: capture.Captured, want: "lo"},
	} {
		rules := capture.Ruleset{LocalMark: 1337, IPv6: tt.ipv6}
		packet := trace.Packet{To: netip.MustParseAddrPort(tt.to), Inbound: tt.inbound, Mark: tt.mark}
		if got := usualInterface(rules, packet, own); got != tt.want {
			t.Errorf("%s: by %s, want %s", name, got, tt.want)
		}
	}
	if got := usualInterface(capture.Ruleset{}, trace.Packet{To: netip.MustParseAddrPort("10.1.2.3:80")}, own); got != "eth0" {
		t.Errorf("rules without a mark: by %s", got)
	}
}
