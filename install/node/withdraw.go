// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/credentials"
)

// ensureCredentials writes the credentials. If the node should have none, it removes those of an
// earlier configuration.
func (n *Node) ensureCredentials(ctx context.Context, renew bool) (credentials.State, error) {
	if n.Settings.Credentials.OnNode {
		return n.Store.Ensure(ctx, renew)
	}
	return credentials.State{Kubeconfig: n.Settings.StateDir + "/" + config.KubeconfigName}, n.withdrawCredentials(ctx)
}

// withdrawTimeout limits one attempt to withdraw the credentials. It is short because the agent retries
// soon, and does not repair its entry during an attempt.
const withdrawTimeout = 5 * time.Second

// withdrawCredentials removes the credentials, and the program that uses them, after every installed
// plugin has got a pod from the agent without credentials. A plugin of an older release needs the
// credentials.
func (n *Node) withdrawCredentials(ctx context.Context) error {
	left := n.credentialFiles()
	if len(left) == 0 {
		return nil
	}
	unused, err := n.directoryWithoutCredentials()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, withdrawTimeout)
	defer cancel()
	err = n.pingAgent(ctx) // the error says more than that of a plugin that timed out
	if err == nil {
		err = n.canary(ctx, unused+"/"+config.KubeconfigName, n.Settings.Credentials.Pod)
	}
	if err != nil {
		return conflist.Waiting(fmt.Sprintf("the credentials stay until every installed plugin gets pods from the agent: %v", err))
	}
	// Remove last the files that credentialFiles looks for, because their absence means that the removal
	// is complete.
	if err = n.removeFiles([]string{n.Settings.StateDir}, lastGood(config.LookupProgram)); err == nil {
		err = errors.Join(
			n.removeFiles(n.Settings.CredentialDirs(), credentials.Names()...),
			n.removeFiles(n.Settings.BinDirs, config.LookupProgram),
		)
	}
	if err != nil {
		return fmt.Errorf("removing the credentials: %w", err)
	}
	n.log.Info("removed the plugin's credentials: the plugin now gets pods only from the agent")
	return nil
}

// credentialFiles returns the paths of kubeconfigs and tokens on the node, and of the programs that use
// them.
func (n *Node) credentialFiles() []string {
	written := n.present(n.Settings.CredentialDirs(), config.KubeconfigName, credentials.TokenName)
	return append(written, n.present(n.Settings.BinDirs, config.LookupProgram)...)
}

// directoryWithoutCredentials returns the state directory if it has no kubeconfig. Otherwise it removes
// the credentials in the run directory, which the plugin uses only while the state directory can't be
// written, and returns the run directory.
func (n *Node) directoryWithoutCredentials() (string, error) {
	if len(n.present([]string{n.Settings.StateDir}, config.KubeconfigName)) == 0 {
		return n.Settings.StateDir, nil
	}
	return n.Settings.RunDir, n.removeFiles([]string{n.Settings.RunDir}, credentials.Names()...)
}

// credentialsFault returns the kubeconfig for the entry. The error says why the plugin can't read a pod
// with the credentials on the node, or which credentials are left on a node that should have none.
func (n *Node) credentialsFault() (kubeconfig string, err error) {
	if n.Settings.Credentials.OnNode {
		return n.Store.Fault()
	}
	if left := n.credentialFiles(); len(left) > 0 {
		err = conflist.Waiting(fmt.Sprintf("%s: expected no credentials on the node; "+
			"the agent removes them once every installed plugin gets pods from it", left[0]))
	}
	return n.Settings.StateDir + "/" + config.KubeconfigName, err
}
