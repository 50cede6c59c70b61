// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/install/backend"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// backendTimeout limits a test, including the time in which the kernel loads modules.
const backendTimeout = time.Minute

func backendCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "backend",
		Short: "Test the backend on this node and, with backend auto, choose it",
		Long: `Test whether this node's kernel supports the backend, with every kind of rule of the
meshes in --netconf, in a temporary network namespace. With "backend": "auto" in
--netconf, choose nftables or, if that does not work, iptables. The result is kept in
--run-dir until the next boot. While the backend does not work, run writes no entry,
except to restore a lost one.

Needs the capabilities SYS_ADMIN and NET_ADMIN. To test iptables, it executes the
programs below --root, which needs NET_RAW, SYS_CHROOT unless --root is /, and, if a
module is not loaded yet, SYS_MODULE. It fails if the test has no clear result.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return o.testBackend(command.Context()) },
	}
}

func (o *options) testBackend(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, backendTimeout)
	defer cancel()
	began := time.Now()
	verdict, err := backend.Test(ctx, strings.TrimSuffix(o.Root, "/"), o.Entry.Asked, o.Entry.Conf.Capture.Meshes, o.Backend)
	if err != nil {
		return fmt.Errorf("%w: the agent waits until the test succeeds", podnet.Explained(err))
	}
	log := o.log.With("asked", verdict.Asked, "took", time.Since(began).Round(time.Millisecond))
	switch {
	case verdict.Chosen == "":
		log.Error("the backend does not work", "reason", verdict.Reason)
	case verdict == o.Backend:
		log.Info("the backend was tested since the node booted", "backend", verdict.Chosen)
		return nil
	default:
		notes := verdict.Notes(verdict.Asked).Each(report.Finding.Advised)
		log.Info("tested the backend", "backend", verdict.Chosen, "notes", cmp.Or(strings.Join(notes, "; "), "none"))
	}
	return backend.Write(o.At(o.RunDir), verdict)
}
