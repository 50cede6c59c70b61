// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/manifest"
	"github.com/capture-cni/capture-cni/install/report"
)

type checked struct {
	Assumed string          `json:"assumed"`
	Others  int             `json:"otherObjects"` // number of objects without pods
	Results report.Findings `json:"results"`
}

func checkCommand(o *options) *cobra.Command {
	var netConf string
	command := &cobra.Command{
		Use:   "check FILE",
		Short: "Predict without a cluster how the pods of a file would be captured",
		Long: `Predict without a cluster how the pods of a file would be captured. The file, - for
stdin, has pods, templates of pods in Deployments and other objects, and lists of
these, in YAML or JSON, of at most 8 MiB.

A pod that an injector may still change is unknown, so check the injector's output.
The exit status is 2 also if the file has no pods.`,
		Example: `  kubectl capture-cni check pod.yaml
  istioctl kube-inject -f deployment.yaml | kubectl capture-cni check -`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			conf, err := parseNetConf(netConf)
			if err != nil {
				return err
			}
			file, err := manifest.Read(args[0], command.InOrStdin())
			if err == nil && len(file.Pods) == 0 {
				err = fmt.Errorf("%s has no pods, and %d other objects", args[0], file.Others)
			}
			if err != nil {
				return err
			}
			for _, warning := range file.Warnings {
				writeProgress(command.ErrOrStderr(), "warning: %s", warning)
			}
			result := &checked{Assumed: "netconf " + netConf + ", pods without IPv6 addresses, and no later change", Others: file.Others}
			for _, pod := range file.Pods {
				pod.Namespace = cmp.Or(pod.Namespace, o.overrides.Context.Namespace)
				result.Results = append(result.Results, fleet.Predict(pod, conf)...)
			}
			text := writeChecked
			if o.output == junit {
				text = writeCheckedJUnit
			}
			good, unknown := len(result.Results.Of(report.Problem)) == 0, len(result.Results.Of(report.NotKnown))
			return write(o, command.OutOrStdout(), result, outcome(good, unknown), text)
		},
	}
	command.Flags().StringVar(&netConf, "netconf", "{}",
		"the plugin's keys as a JSON object, as netconf in the chart's values, except the backend auto")
	return command
}

// parseNetConf reads the plugin's keys. As for the agent, an unknown key is an error.
func parseNetConf(keys string) (config.NetConf, error) {
	in, err := config.Read([]byte(keys))
	if err != nil {
		return config.NetConf{}, fmt.Errorf("--netconf: %w", err)
	}
	conf, unknown, err := in.NetConf()
	if err == nil && len(unknown) > 0 {
		err = errors.New(strings.Join(unknown, "\n"))
	}
	return conf, err
}

func writeChecked(out io.Writer, c *checked) {
	rows := table{header: []string{"RESULT", "POD", "FOUND"}}
	for _, result := range c.Results {
		rows.add(string(result.Severity), result.Subject, result.Code.Mark(result.Reason))
		rows.next(result.Subject, result.Next)
	}
	rows.write(out)
	writeNotes(out, nil, c.notes())
	writeCodesPage(out, true)
}

// notes returns the assumptions of the results, and the number of objects without pods.
func (c *checked) notes() []string {
	notes := []string{"assumed: " + c.Assumed}
	if c.Others > 0 {
		notes = append(notes, fmt.Sprintf("%d other objects have no pods", c.Others))
	}
	return notes
}

// writeCheckedJUnit writes the result of check as JUnit's XML, with one test case for each finding.
func writeCheckedJUnit(out io.Writer, c *checked) {
	suite := junitSuite{
		Name: "capture-cni check", Tests: len(c.Results), Notes: strings.Join(c.notes(), "\n"),
		Failed: len(c.Results.Of(report.Problem)), Skipped: len(c.Results.Of(report.NotKnown)),
	}
	for _, result := range c.Results {
		one := junitCase{Class: result.Subject, Name: string(result.Code)}
		switch result.Severity {
		case report.Problem:
			one.Failure = reasonOf(result)
		case report.NotKnown:
			one.Skipped = reasonOf(result)
		}
		suite.Cases = append(suite.Cases, one)
	}
	suite.write(out)
}
