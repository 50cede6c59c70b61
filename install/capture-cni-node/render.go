// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/entry"
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
			out := command.OutOrStdout()
			switch {
			case manifest == "" && traced:
				return errors.New("--to needs --pod, a file with an injected pod's manifest")
			case manifest == "":
				return printEntry(out, o.Entry)
			case traced:
				return traceManifest(out, o.Entry.Conf, manifest, addresses, packet)
			}
			return renderPod(out, o.Entry.Conf, manifest, addresses)
		},
	}
	flags := command.Flags()
	flags.StringVar(&manifest, "pod", "", "file with an injected pod's manifest; empty: print the entry")
	flags.StringSliceVar(&addresses, "address", []string{"192.0.2.1"}, "the pod's IP addresses")
	packet.declare(flags, "lo to an address of the pod, otherwise eth0")
	return command
}

func printEntry(out io.Writer, entry entry.Entry) error {
	indented, err := json.MarshalIndent(json.RawMessage(entry.Text(entry.Conf.Kubeconfig)), "", "  ")
	if err != nil {
		return fmt.Errorf("writing the entry: %w", err)
	}
	_, err = fmt.Fprintf(out, "%s\n", indented)
	return err
}

func renderPod(out io.Writer, conf config.NetConf, manifest string, addresses []string) error {
	decision, err := decideManifest(conf, manifest, addresses)
	if err != nil {
		return err
	}
	if exemption := decision.Exemption; exemption.Cause != "" {
		_, err := fmt.Fprintf(out, "not captured: %s\n", exemption.Message)
		return err
	}
	return printRules(out, decision)
}

// decideManifest decides on a pod that a manifest describes.
func decideManifest(conf config.NetConf, manifest string, addresses []string) (capture.Decision, error) {
	pod, err := readPod(manifest)
	if err != nil {
		return capture.Decision{}, err
	}
	return capture.Decide(podfields.Of(pod), conf.Capture, func() ([]netip.Addr, error) { return parseAddresses(addresses) })
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

func printRules(out io.Writer, decision capture.Decision) error {
	described, err := json.MarshalIndent(decision.Intent, "# ", "  ")
	if err != nil {
		return fmt.Errorf("writing the intent: %w", err)
	}
	rules := capture.Rules(decision.Intent)
	var text strings.Builder
	for _, warning := range decision.Warnings {
		fmt.Fprintf(&text, "# warning: %s\n", warning)
	}
	fmt.Fprintf(&text, "# intent: %s\n\n# nft -f\n%s\n# iptables-restore --noflush\n%s", described, rules, iptables.RestoreText(rules, capture.IPv4, nil))
	if len(rules.For(capture.IPv6).Chains) > 0 {
		fmt.Fprintf(&text, "\n# ip6tables-restore --noflush\n%s", iptables.RestoreText(rules, capture.IPv6, nil))
	}
	_, err = io.WriteString(out, text.String())
	return err
}

func readPod(manifest string) (*corev1.Pod, error) {
	content, err := os.ReadFile(manifest)
	if err != nil {
		return nil, fmt.Errorf("reading the pod: %w", err)
	}
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict(content, pod); err != nil {
		return nil, fmt.Errorf("reading the pod: %w", err)
	}
	if pod.Kind != "" && pod.Kind != "Pod" {
		return nil, fmt.Errorf("reading the pod: the manifest's kind is %q: expected Pod", pod.Kind)
	}
	return pod, nil
}
