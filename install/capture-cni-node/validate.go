// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
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
	s := validate.Settings{}
	var destinations []net.IP
	for _, a := range validate.DefaultDestinations() {
		destinations = append(destinations, a.AsSlice())
	}
	families := string(validate.Auto)
	command := &cobra.Command{
		Use:   "validate outbound|inbound",
		Short: "In a pod: is its traffic captured?",
		Long: `In a pod: is its traffic captured? Made for an init container that runs before
the proxy. It needs no capability and no server, and waits for rules to appear.

outbound, with any uid and gid but the proxy's, proves that what an application
sends elsewhere arrives at the proxy: hook, rules and port. The connections are
made with a TTL of 1 to addresses that nobody has, so that they end on the node
if they are not captured.

inbound, with the proxy's uid, proves that what the pod sends to itself through a
service arrives at the proxy's inbound port. What comes from outside takes
another hook (PREROUTING), where no packet of the pod's own ever passes: for that
hook, for TPROXY and for DNS, the proof is that they were committed together with
what is proved.

Exit status: 0 captured, 10 outbound is not, 11 inbound is not, 12 the port is in
use, 13 not tried for want of an address or a route, 1 anything else.`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{string(validate.Outbound), string(validate.Inbound)},
	}
	flags := command.Flags()
	outbound := flags.Uint16("outbound-port", mesh.OutboundPort, "where the proxy takes outbound traffic")
	inbound := flags.Uint16("inbound-port", mesh.InboundPort, "where the proxy takes inbound traffic")
	flags.DurationVar(&s.Budget, "budget", 30*time.Second, "how long to wait for the rules; 0 tries once")
	flags.StringVar(&families, "family", families, "auto (what the mesh captures), ipv4, ipv6 or both")
	flags.IPSliceVar(&destinations, "destination", destinations, "what outbound is tried with, an address of each family; for pods that capture some ranges alone")
	command.RunE = func(command *cobra.Command, args []string) error {
		s.Direction, s.Families, s.Port = validate.Direction(args[0]), validate.Families(families), *outbound
		if s.Direction == validate.Inbound {
			s.Port = *inbound
		}
		switch s.Families {
		case validate.Auto, validate.OnlyIPv4, validate.OnlyIPv6, validate.Both:
		default:
			return fmt.Errorf("--family is %q: expected auto, ipv4, ipv6 or both", families)
		}
		for _, ip := range destinations {
			address, _ := netip.AddrFromSlice(ip)
			s.Destinations = append(s.Destinations, address.Unmap())
		}
		return validate.Run(command.Context(), s, command.ErrOrStderr())
	}
	return command
}

// exitStatus is 1 unless an error knows better.
func exitStatus(err error) int {
	var status interface{ ExitCode() int }
	if errors.As(err, &status) {
		return status.ExitCode()
	}
	return 1
}
