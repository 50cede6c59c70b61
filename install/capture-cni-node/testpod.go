// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/install/validate"
)

func testPodCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "test-pod",
		Short: "Run a program of the pods that kubectl capture-cni test creates",
	}
	command.AddCommand(testProxyCommand(), testServerCommand(), testClientCommand())
	return command
}

func testProxyCommand() *cobra.Command {
	mesh := config.DefaultSettings().Mesh
	p := validate.Proxy{}
	command := &cobra.Command{
		Use:   "proxy",
		Short: "Stand in for the sidecar proxy: forward captured connections, and report each to its client",
		Args:  cobra.NoArgs,
		RunE:  func(command *cobra.Command, _ []string) error { return p.Run(command.Context()) },
	}
	flags := command.Flags()
	flags.StringVar(&p.Pod, "pod", "", "name by which the proxy reports itself")
	flags.Uint16Var(&p.OutboundPort, "outbound-port", mesh.OutboundPort, "the proxy's port for outbound traffic")
	flags.Uint16Var(&p.InboundPort, "inbound-port", mesh.InboundPort, "the proxy's port for inbound traffic")
	flags.BoolVar(&p.Transparent, "transparent", false, "inbound traffic arrives by TPROXY; needs NET_ADMIN")
	return command
}

func testServerCommand() *cobra.Command {
	var ports []uint
	command := &cobra.Command{
		Use:   "server",
		Short: "Answer connections as an application",
		Args:  cobra.NoArgs,
		RunE:  func(command *cobra.Command, _ []string) error { return validate.Serve(command.Context(), ports) },
	}
	command.Flags().UintSliceVar(&ports, "port", nil, "port to listen at; can be repeated")
	return command
}

func testClientCommand() *cobra.Command {
	var destinations []string
	var budget time.Duration
	var result string
	command := &cobra.Command{
		Use:   "client",
		Short: "Connect as an application, and write the path of each connection",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			var to []netip.AddrPort
			for _, text := range destinations {
				destination, err := netip.ParseAddrPort(text)
				if err != nil {
					return fmt.Errorf("--to is %q: expected IP:PORT", text)
				}
				to = append(to, destination)
			}
			message, err := report.EncodeTest(validate.Connect(command.Context(), to, budget))
			if err != nil {
				return err
			}
			if err := os.WriteFile(result, message, 0o600); err != nil {
				return fmt.Errorf("writing the result: %w", err)
			}
			return nil
		},
	}
	flags := command.Flags()
	flags.StringSliceVar(&destinations, "to", nil, "destination, IP:PORT; can be repeated")
	flags.DurationVar(&budget, "budget", 15*time.Second, "how long to wait for the application's answers")
	flags.StringVar(&result, "result", "/dev/termination-log", "file to write: the container's termination message")
	return command
}
