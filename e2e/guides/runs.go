// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"slices"
	"strings"
)

// Run is a section of a guide whose commands a test runs, and what their output contains.
type Run struct {
	Test           string
	Guide, Section string
	Want           []string
}

const (
	tour      = "e2e/cluster/pods.TestGuides"
	migration = "e2e/cluster/mesh.TestMigration"
	published = "e2e/publish.TestVerification"
)

// Runs are the sections that tests run, in the order in which they do.
var Runs = []Run{
	{tour, "guides/install.md", "1. Check the cluster", []string{"helm -n capture-cni install capture-cni deploy/chart"}},
	{tour, "guides/install.md", "4. Install the agents", []string{" desired", " ready"}},
	{tour, "guides/install.md", "7. Restart the workloads", []string{"successfully rolled out", "No pods found"}},
	{tour, "guides/install.md", "8. See that it works", []string{" ready", "captured"}},
	{tour, "guides/debug.md", "1. Is it one pod, or a node?", []string{" ready"}},
	{tour, "guides/debug.md", "2. Ask about the pod", []string{"captured", "last ADD"}},
	{tour, "guides/debug.md", "3. A pod that does not start", []string{"Started"}},
	{tour, "guides/debug.md", "4. A connection that goes the wrong way", []string{"redirected to port 15001"}},
	{tour, "guides/guard.md", "Who goes past the proxy, and how much?", []string{"EXEMPT", "No connections found."}},
	{tour, "guides/debug.md", "5. Look at the node", []string{"capture-cni-node-", "msg=", "captured"}},
	{tour, "guides/debug.md", "7. Ask for help", []string{".tar.gz"}},
	{tour, "guides/upgrade.md", "1. Read what changes", nil},
	{tour, "guides/upgrade.md", "2. Upgrade", []string{"STATUS: deployed"}},
	{tour, "guides/upgrade.md", "3. See that it worked", []string{" ready", "STATUS: deployed"}},
	{tour, "guides/nodes.md", "Pools", []string{"STATUS: deployed", " ready"}},
	{tour, "guides/nodes.md", "A canary", []string{"condition met"}},
	{tour, "guides/nodes.md", "Take a node out, and in again", []string{"drained", "1 removed", "uncordoned", "untainted"}},
	{tour, "guides/admission.md", "Admission policies", []string{"labeled"}},
	{tour, "guides/roll-back.md", "To earlier values", []string{"superseded", "Rollback was a success", "platform: plain"}},
	{tour, "guides/upgrade.md", "`token.onNode` from true to false", []string{" ready"}},
	{tour, "guides/upgrade.md", "Back to a token on the nodes", []string{" ready"}},
	{tour, "guides/roll-back.md", "To the earlier version", []string{"STATUS: deployed"}},
	{tour, "guides/remove.md", "1. Clean the nodes", []string{"STATUS: deployed"}},
	{tour, "guides/remove.md", "2. See that the nodes are clean", []string{" removed"}},
	{tour, "guides/remove.md", "3. Uninstall", []string{"uninstalled", `namespace "capture-cni" deleted`}},

	{migration, "guides/migrate-istio-cni.md", "2. Hold istio-cni's agents", []string{"istio-cni-node patched"}},
	{migration, "guides/migrate-istio-cni.md", "3. Install, for no node yet", []string{"STATUS: deployed"}},
	{migration, "guides/migrate-istio-cni.md", "4. Node by node", []string{"condition met"}},
	{migration, "guides/migrate-istio-cni.md", "5. When all nodes are done", []string{"uninstalled", " ready"}},
	{migration, "guides/migrate-istio-cni.md", "First, use only capture-cni's list", []string{" ready"}},
	{migration, "guides/migrate-istio-cni.md", "Then install istio-cni", []string{"unlabeled"}},
	{migration, "guides/migrate-istio-cni.md", "Then remove capture-cni", []string{" removed", "uninstalled"}},

	{published, "guides/verify.md", "2. Verify the files", []string{"Verified OK", ".tgz: OK"}},
	{published, "guides/verify.md", "3. Verify image and chart", []string{"docker-manifest-digest"}},
	{published, "guides/verify.md", "4. Verify the provenance", []string{"Verified OK"}},
	{published, "guides/verify.md", "5. Verify the list of modules", nil},
	{published, "guides/verify.md", "6. Verify the statement on vulnerabilities", []string{"Verified OK"}},
}

// Of returns the sections that a test runs.
func Of(test string) (runs []Run) {
	for _, run := range Runs {
		if run.Test == test {
			runs = append(runs, run)
		}
	}
	return runs
}

// reason returns why no test runs a command as it is written; empty: one does, or has to.
func reason(command Command) string {
	for _, e := range exempt {
		if e.covers(command) {
			return e.reason
		}
	}
	return ""
}

// exemption is a command that no test runs as it is written. It begins with these words.
type exemption struct{ guide, begins, reason string }

func (e exemption) covers(command Command) bool {
	return e.guide == command.Guide && strings.HasPrefix(command.Text, e.begins)
}

// isRun reports whether a test runs a command, in this guide or as the same text in another.
func isRun(command Command, all []Command) bool {
	return slices.ContainsFunc(all, func(other Command) bool {
		return other.Text == command.Text && reason(other) == "" && slices.ContainsFunc(Runs, func(run Run) bool {
			return run.Guide == other.Guide && run.Section == other.Section
		})
	})
}
