// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/report"
)

func traceCommand(o *options) *cobra.Command {
	command := &cobra.Command{
		Use:   "trace POD|NAMESPACE/POD|deploy/NAME --to IP:PORT|svc/NAME:PORT",
		Short: "Show which rule decides about a packet of a pod",
		Long: `Show which rule decides about the first packet of a new connection: the verdict, the
packet's path through the rules, what that assumes, and what in the pod's network
namespace makes the answer uncertain.

It executes "capture-cni-node explain --to" in the guard's container on the pod's node,
which changes nothing and sends no packet.`,
		Example: `  kubectl capture-cni trace shop/web --to 10.1.2.3:443 --sender 1000:1000
  kubectl capture-cni trace -n shop deploy/web --to svc/cart:http
  kubectl capture-cni trace shop/web --to 10.244.1.7:8080 --from 10.244.2.9 --in`,
		Args: cobra.ExactArgs(1),
	}
	flags := packetFlags(command)
	command.RunE = o.run(func(command *cobra.Command, client *fleet.Client, args []string) error {
		namespace, name, err := o.podOf(command.Context(), client, args[0])
		if err != nil {
			return err
		}
		to, err := resolveService(command.Context(), client, namespace, flags.Lookup("to").Value.String())
		if err != nil {
			return err
		}
		if err := flags.Set("to", to); err != nil {
			return err
		}
		traced, err := o.explainer(client).Trace(command.Context(), namespace, name, given(flags))
		if err != nil {
			return err
		}
		return writeTrace(o, command.OutOrStdout(), traced)
	})
	return command
}

// writeTrace writes a trace. Its error is the exit status notKnown if the trace has doubts.
func writeTrace(o *options, out io.Writer, traced report.Trace) error {
	return write(o, out, traced, outcome(true, len(traced.Doubts)), func(out io.Writer, traced report.Trace) {
		writeLines(out, "", traced.Text())
	})
}

// packetFlags declares the flags that describe a packet, and returns them. The agent, not this command,
// checks their values.
func packetFlags(command *cobra.Command) *pflag.FlagSet {
	flags := pflag.NewFlagSet("packet", pflag.ContinueOnError)
	flags.String("to", "", "the packet's destination, IP:PORT, svc/NAME:PORT or svc/NAME.NAMESPACE:PORT (required)")
	flags.String("from", "", "the packet's source, IP or IP:PORT; empty: that of the pod's routes or, with --in, one that no rule names")
	flags.String("sender", "", "the sending process, UID:GID, which agents call --as; empty: a user and a group that no rule names")
	flags.Bool("udp", false, "UDP instead of TCP")
	flags.Bool("ping", false, "an ICMP echo request instead of TCP; --to is then an IP address, not a service and without a port")
	flags.Bool("in", false, "the packet comes from another host, to an address of the pod")
	flags.String("interface", "",
		"the interface by which the packet leaves or arrives; empty: that of the pod's routes or, with --in, that of the address --to")
	flags.Uint32("mark", 0, "the packet's mark, as the proxy sets it with TPROXY")
	command.Flags().AddFlagSet(flags)
	_ = command.MarkFlagRequired("to") // fails only for a flag that does not exist
	return flags
}

// given returns the flags that the user set, in the form that the agents of all releases understand.
// The agents' name for --sender is --as, which in kubectl is the flag for impersonation.
func given(flags *pflag.FlagSet) (args []string) {
	flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Changed {
			args = append(args, "--"+strings.Replace(flag.Name, "sender", "as", 1)+"="+flag.Value.String())
		}
	})
	return args
}
