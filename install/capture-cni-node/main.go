// SPDX-License-Identifier: Apache-2.0

// Command capture-cni-node contains the node agent and the guard. The agent installs the plugin, its
// entry in the CNI configuration of the runtime or of Multus and, unless --token-on-node is false, its
// credentials on a node, and keeps them there. The agent removes them only on request, not when it ends.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/install/validate"
)

// The first thread must never enter a pod's network namespace. In a container of its own, this process is
// process 1, and podnet.Open takes the namespace of that process's first thread for the host's.
func init() { runtime.LockOSThread() }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	limitMemory("/sys/fs/cgroup")
	if err := root().ExecuteContext(ctx); err != nil {
		if advice := report.SkewAdvice(err.Error()); advice != "" {
			err = fmt.Errorf("%w: if a chart passed it, %s", err, advice)
		}
		if !errors.Is(err, errCheckFailed) { // the report was already printed
			fmt.Fprintln(os.Stderr, "capture-cni-node:", err)
		}
		if failure, ok := errors.AsType[*validate.Failure](err); ok {
			os.Exit(failure.Code)
		}
		os.Exit(1)
	}
}

// errCheckFailed is the error of a command that has printed a report with a fault.
var errCheckFailed = errors.New("check failed")

func root() *cobra.Command {
	command := &cobra.Command{
		Use:     "capture-cni-node",
		Version: config.OwnVersion(),
		Short:   "Keeps the capture-cni plugin installed on a node",
		Long: `Keeps the capture-cni plugin installed on a node.

Each flag can be set in the environment, too: --net-dir is CAPTURE_CNI_NET_DIR.`,
		SilenceErrors: true, SilenceUsage: true,
	}
	command.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	command.AddCommand(validateCommand(), testPodCommand())
	o := &options{}
	l := &logging{}
	l.declare(command.PersistentFlags())
	command.PersistentPreRunE = func(command *cobra.Command, _ []string) (err error) {
		if err := readEnvironment(command.Flags()); err != nil {
			return err
		}
		if o.log, err = l.logger(os.Stderr); err != nil {
			return err
		}
		klog.SetSlogLogger(o.log) // the log of the API server's client
		return nil
	}
	for _, c := range []*cobra.Command{
		runCommand(o), guardCommand(o), backendCommand(o), explainCommand(o), trafficCommand(o), reportCommand(o),
		uninstallCommand(o), verifyCommand(o), preflightCommand(o), renderCommand(o),
	} {
		o.declare(c.Flags())
		c.PreRunE = func(*cobra.Command, []string) error { return o.prepare() }
		command.AddCommand(c)
	}
	return command
}
