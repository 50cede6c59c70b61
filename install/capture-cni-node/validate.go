// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/validate"
)

func validateCommand() *cobra.Command {
	mesh := config.DefaultSettings().Mesh
	s := validate.Settings{Families: validate.Auto}
	var destinations []net.IP
	for _, a := range validate.DefaultDestinations() {
		destinations = append(destinations, a.AsSlice())
	}
	command := &cobra.Command{
		Use:   "validate outbound|inbound",
		Short: "Prove inside a pod that its traffic is captured",
		Long: `Prove inside a pod that its traffic is captured. Run it in an init container
before the proxy starts. It needs no capability and no server, and waits for the
rules.

outbound runs with a uid and a gid that the rules capture, so not with the proxy's. It
proves that connections to other hosts are redirected to the proxy's outbound port. It
connects with a TTL of 1 to addresses that no host has, so the first router drops an
uncaptured connection.

inbound runs with the proxy's uid in a pod of Istio or Kuma, because only their rules
redirect the proxy's connections to its own pod. It proves that the pod's connections
to its own service are redirected to the proxy's inbound port. Connections from other
hosts take the hook PREROUTING, which a process in the pod can't test. ADD commits the
rules of that hook, of TPROXY and of DNS together with the rules that are proved.

Exit status: 0 captured, 10 outbound not captured, 11 inbound not captured, 12 the
port is in use, 13 unknown for lack of an address or a route, 1 any other error.`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{string(validate.Outbound), string(validate.Inbound)},
	}
	flags := command.Flags()
	outbound := flags.Uint16("outbound-port", mesh.OutboundPort, "the proxy's port for outbound traffic")
	inbound := flags.Uint16("inbound-port", mesh.InboundPort, "the proxy's port for inbound traffic")
	flags.DurationVar(&s.Budget, "budget", 30*time.Second, "how long to wait for the rules; 0: one attempt")
	flags.StringVar((*string)(&s.Families), "family", string(s.Families),
		"families to prove: auto (those that the mesh captures), ipv4, ipv6 or both")
	flags.IPSliceVar(&destinations, "destination", destinations,
		"address that outbound connects to, one per family; set it for pods that capture only some ranges")
	command.RunE = func(command *cobra.Command, args []string) error {
		s.Direction, s.Port = validate.Direction(args[0]), *outbound
		if s.Direction == validate.Inbound {
			s.Port = *inbound
		}
		switch s.Families {
		case validate.Auto, validate.OnlyIPv4, validate.OnlyIPv6, validate.Both:
		default:
			return fmt.Errorf("--family is %q: expected auto, ipv4, ipv6 or both", s.Families)
		}
		for _, ip := range destinations {
			address, _ := netip.AddrFromSlice(ip)
			s.Destinations = append(s.Destinations, address.Unmap())
		}
		return validate.Run(command.Context(), s, command.ErrOrStderr())
	}
	return command
}
