// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/trace"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/iptables"
	"github.com/capture-cni/capture-cni/plugin/podfields"
)

func renderCommand(o *options) *cobra.Command {
	var manifest string
	var addresses []string
	var packet packetFlags
	command := &cobra.Command{
		Use:   "render",
		Short: "Print the plugin's entry or, with --pod, the rules of an ADD, or which of them decides about a packet",
		Long: `Print the plugin's entry or, with --pod, the rules of an ADD. With --to as well,
print which rule decides about the first packet of a new connection, the packet's
path through the rules, and what that assumes:

  capture-cni-node render --pod pod.yaml --to 10.1.2.3:443 --as 1000:1000
  capture-cni-node render --pod pod.yaml --to 192.0.2.1:8080 --in`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			traced, err := packet.asked(command.Flags())
			if err != nil {
				return err
			}
			var text string
			var pod *corev1.Pod
			if manifest != "" {
				if pod, err = readPod(manifest, command.InOrStdin(), command.ErrOrStderr()); err != nil {
					return err
				}
			}
			switch {
			case manifest == "" && traced:
				return errors.New("--to needs --pod, a file with an injected pod")
			case manifest == "" && o.BackendFault() != nil:
				return o.BackendFault()
			case manifest == "":
				text = string(conflist.Indented(o.Entry.Text(o.Entry.Conf.Kubeconfig)))
			case traced:
				text, err = o.traceText(pod, addresses, packet)
			default:
				text, err = o.rulesText(pod, addresses)
			}
			if err != nil {
				return err
			}
			_, err = io.WriteString(command.OutOrStdout(), text)
			return err
		},
	}
	flags := command.Flags()
	flags.StringVar(&manifest, "pod", "", "file with one injected pod or template, - for stdin; empty: print the entry")
	flags.StringSliceVar(&addresses, "address", []string{"192.0.2.1"}, "the pod's IP addresses")
	packet.declare(flags, "lo for a packet that stays in the pod, otherwise eth0")
	return command
}

func (o *options) decide(pod *corev1.Pod, addresses []string) (capture.Decision, error) {
	parsed, fault := parseAddresses(addresses)
	decision, err := capture.Decide(podfields.Of(pod), o.Entry.Conf.Capture)
	if err = cmp.Or(fault, err); err != nil {
		return decision, err
	}
	return decision.At(parsed, nil) // without the addresses of a node
}

func parseAddresses(texts []string) ([]netip.Addr, error) {
	var addresses []netip.Addr
	for _, text := range texts {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("--address is %q: expected an IP address", text)
		}
		addresses = append(addresses, address)
	}
	return addresses, nil
}

// rulesText returns the rules of a pod as text, or the reason for which the pod is not captured.
func (o *options) rulesText(pod *corev1.Pod, addresses []string) (string, error) {
	decision, err := o.decide(pod, addresses)
	if err != nil {
		return "", err
	}
	if exemption := decision.Exemption; exemption.Cause != "" {
		return fmt.Sprintf("not captured: %s\n", exemption.Message), nil
	}
	described, err := json.MarshalIndent(decision.Intent, "# ", "  ")
	if err != nil {
		return "", fmt.Errorf("writing the intent: %w", err)
	}
	rules := decision.Rules
	var text strings.Builder
	writeRemarks(&text, decision, "# %s: %s\n")
	fmt.Fprintf(&text, "# intent: %s\n\n# nft -f\n%s\n# iptables-restore --noflush\n%s",
		described, rules, iptables.RestoreText(rules, capture.IPv4, nil))
	if len(rules.For(capture.IPv6).Chains) > 0 {
		fmt.Fprintf(&text, "\n# ip6tables-restore --noflush\n%s", iptables.RestoreText(rules, capture.IPv6, nil))
	}
	return text.String(), nil
}

func writeRemarks(text *strings.Builder, decision capture.Decision, format string) {
	for _, warning := range decision.Warnings {
		fmt.Fprintf(text, format, "warning", warning)
	}
	for _, note := range decision.Notes {
		fmt.Fprintf(text, format, "note", note)
	}
}

// traceText returns a text that says which of a pod's rules decides about a packet.
func (o *options) traceText(pod *corev1.Pod, addresses []string, flags packetFlags) (string, error) {
	packet, packetErr := flags.packet()
	own, addressErr := parseAddresses(addresses)
	if err := errors.Join(packetErr, addressErr); err != nil {
		return "", err
	}
	decision, err := o.decide(pod, addresses)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	writeRemarks(&text, decision, "%-12s %s\n")
	if exemption := decision.Exemption; exemption.Cause != "" {
		fmt.Fprintf(&text, "verdict      passes: the pod is not captured\nbecause      %s\n", exemption.Message)
		return text.String(), nil
	}
	if packet.Interface == "" {
		packet.Interface = usualInterface(decision.Rules, packet, own)
	}
	path := trace.Of(decision.Rules, packet)
	path.NFTables = true // the chains have the names that render prints for nft
	text.WriteString(path.Text("no other program changes or drops the packet"))
	return text.String(), nil
}

// usualInterface returns the interface that a packet uses in a pod with one interface and one default
// route.
func usualInterface(rules capture.Ruleset, p trace.Packet, own []netip.Addr) string {
	to := p.To.Addr()
	isLocal := to.IsLoopback() || slices.Contains(own, to)
	isRoutedHere := p.Mark != 0 && p.Mark == rules.LocalMark && (to.Is4() || rules.IPv6 == capture.Captured)
	if !p.Inbound && (isLocal || isRoutedHere) {
		return "lo"
	}
	return "eth0"
}
