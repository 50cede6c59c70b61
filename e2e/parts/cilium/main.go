// SPDX-License-Identifier: Apache-2.0

// cilium-cni-config is the part of Cilium's agent that writes and guards CNI
// configuration, and nothing else of the agent. It has that part's flags.
package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/cilium/cilium/daemon/cmd/cni"
	"github.com/cilium/cilium/pkg/option"
	"github.com/cilium/hive"
	"github.com/cilium/hive/cell"
	"github.com/spf13/pflag"
)

func main() {
	h := hive.New(
		cni.Cell,
		cell.Provide(func() *option.DaemonConfig { return &option.DaemonConfig{} }), // it reads whether to debug
		cell.Invoke(func(cni.CNIConfigManager) {}),
	)
	h.RegisterFlags(pflag.CommandLine)
	pflag.Parse()
	if err := h.Run(slog.Default()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
