// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/deploy/fleet"
)

func reportCommand(o *options) *cobra.Command {
	var path string
	var nodes []string
	command := &cobra.Command{
		Use:   "report",
		Short: "Pack an archive of the cluster for a support case",
		Long: `Pack an archive of the cluster for a support case: the state of the fleet, and what
the agents of some nodes report of themselves. Without --nodes, those are the nodes
that need attention, nine at most, and one that does not.

It executes "capture-cni-node report" in the agents' pods, which changes nothing. The
archive contains known fields only, such as names of nodes and pods, states, and the
annotations that decide about capture; no file of a node, no Secret and no log.`,
		Args: cobra.NoArgs,
		RunE: o.run(func(command *cobra.Command, client *fleet.Client, _ []string) error {
			written, err := o.packReport(command.Context(), client, path, nodes, command.ErrOrStderr())
			if err != nil {
				return err
			}
			fmt.Fprintln(command.OutOrStdout(), written)
			return nil
		}),
	}
	command.Flags().StringVar(&path, "file", "", "file to write, which must not exist; empty: capture-cni-TIME.tar.gz")
	command.Flags().StringSliceVar(&nodes, "nodes", nil, "nodes to report; can be repeated; empty: nodes that need attention, and one other")
	return command
}

// packReport writes an archive about the named nodes or, without names, about nodes that need attention
// and one other, and returns the archive's path. If path is empty, it chooses a name that contains the
// time.
func (o *options) packReport(ctx context.Context, client *fleet.Client, path string, nodes []string, progress io.Writer) (string, error) {
	now := time.Now()
	if path == "" {
		path = "capture-cni-" + now.UTC().Format("20060102T150405Z") + ".tar.gz"
	}
	archive, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("making the archive: %w", err)
	}
	reporter := fleet.Reporter{
		Client: client, Exec: client.Exec, Namespace: o.agentNamespace, Nodes: nodes, Version: config.OwnVersion(),
		Progress: func(done, all int, node string) {
			writeProgress(progress, "%d of %d nodes: %s", done, all, node)
		},
	}
	if err := errors.Join(reporter.Write(ctx, archive, now), archive.Close()); err != nil {
		return "", errors.Join(err, os.Remove(path))
	}
	return path, nil
}
