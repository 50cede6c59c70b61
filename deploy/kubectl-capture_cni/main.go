// SPDX-License-Identifier: Apache-2.0

// Command kubectl-capture_cni is a kubectl plugin: kubectl capture-cni shows the state of all nodes and
// of the pods in the mesh, and explains the state of single pods.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/deploy/fleet"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // so that a second Ctrl-C ends a command during its clean-up
	status := execute(ctx, os.Args[1:], newScreen(os.Stdout), newScreen(os.Stderr))
	stop()
	os.Exit(status)
}

// execute executes a command, and returns its exit status.
func execute(ctx context.Context, args []string, stdout, stderr *screen) int {
	klog.SetSlogLogger(slog.New(slog.NewTextHandler(stderr, nil))) // through the screen, because client-go logs data from the cluster
	command := root(stderr)
	command.SetArgs(args)
	command.SetOut(stdout)
	command.SetErr(stderr)
	err := command.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if found, isPrinted := errors.AsType[status](err); isPrinted {
		return int(found)
	}
	fmt.Fprintln(stderr, "kubectl capture-cni:", strings.ReplaceAll(err.Error(), "\n", "\n  "))
	return int(notKnown)
}

// status is the error of a command that has already printed its result. Its number is the exit status.
type status int

const (
	notGood  status = 1 // something needs attention
	notKnown status = 2 // the command could not determine the state
)

// Error implements error.
func (s status) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// outcome returns the error for the exit status of a command that has printed its result: notGood if
// something needs attention, otherwise notKnown if something is unknown, and otherwise nil.
func outcome(good bool, unknown int) error {
	switch {
	case !good:
		return notGood
	case unknown > 0:
		return notKnown
	}
	return nil
}

// options contains the flags that all commands have.
type options struct {
	kubeconfig     string
	overrides      clientcmd.ConfigOverrides
	agentNamespace string
	output         string
	warnings       rest.WarningHandler // handles warnings of the API server
}

func root(warnings io.Writer) *cobra.Command {
	o := &options{warnings: rest.NewWarningWriter(warnings, rest.WarningWriterOptions{Deduplicate: true})}
	command := &cobra.Command{
		Use:         "kubectl-capture_cni",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl capture-cni"},
		Version:     config.OwnVersion(),
		Short:       "Shows how the pods of a cluster are captured",
		Long: `Shows how the pods of a cluster are captured.

Exit status: 0 if all is well, 1 if something needs attention (status, explain, check,
precheck and test), 2 if the command could not find out. The chart's ClusterRole and
Role capture-cni-operator have the permissions for status and list. Role
capture-cni-operator-exec has the additional ones for explain, trace, traffic and
report; ClusterRole capture-cni-operator-test (testRole.enabled=true) has those for
test.`,
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(command *cobra.Command, _ []string) error { return o.check(command.Name()) },
	}
	flags := command.PersistentFlags()
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig to use; empty: as kubectl chooses it")
	clientcmd.BindOverrideFlags(&o.overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
	flags.StringVar(&o.agentNamespace, "agent-namespace", fleet.DefaultNamespace, "namespace of the agents")
	flags.StringVarP(&o.output, "output", "o", "", "form of the output: wide, json, yaml or, of test and check, junit; empty: text")
	command.AddCommand(statusCommand(o), listCommand(o), explainCommand(o), traceCommand(o), trafficCommand(o),
		checkCommand(o), precheckCommand(o), testCommand(o), reportCommand(o), versionCommand(o))
	o.complete(command)
	const inherited = "Global Flags:\n{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}"
	command.SetUsageTemplate(strings.Replace(command.UsageTemplate(), inherited,
		`Use "{{.Root.CommandPath}} --help" for the flags of all commands.`, 1))
	return command
}

func (o *options) check(command string) error {
	if o.agentNamespace == "" {
		return errors.New("--agent-namespace is empty: expected the namespace of the agents")
	}
	switch {
	case slices.Contains([]string{"", "wide", "json", "yaml"}, o.output), o.output == junit && (command == "test" || command == "check"):
		return nil
	}
	return fmt.Errorf("--output is %q: expected wide, json, yaml or, of test and check, junit", o.output)
}

// run returns a cobra command's function, which creates a client of the cluster and calls do.
func (o *options) run(do func(command *cobra.Command, client *fleet.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, args []string) error {
		client, err := o.connect()
		if err != nil {
			return err
		}
		return do(command, client, args)
	}
}

func (o *options) connect() (*fleet.Client, error) {
	access, err := o.config().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	access.WarningHandler = o.warnings
	return fleet.NewClient(access)
}

// config returns the configuration with which kubectl would connect to the cluster.
func (o *options) config() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &o.overrides)
}
