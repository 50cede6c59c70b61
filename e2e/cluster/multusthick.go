// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// MultusChainDir is the directory of the auxiliary chain, where OpenShift has it. It is
// empty after a boot.
const MultusChainDir = multusRunDir + "/" + multusChain

const (
	multusRunDir  = "/run/multus/cni/net.d"
	multusChain   = "vendor-cni-chain"
	multusDaemon  = "multus-daemon"
	multusAccount = "/run/secrets/kubernetes.io/serviceaccount"
)

// multusPrograms are the programs of the thick Multus in the directory of plugins, and the
// parts that they are.
var multusPrograms = map[string]string{"multus-shim": "multus-shim", "passthru": "passthru-cni"}

// multusDaemonConf has the keys that OpenShift's configuration has: the daemon generates
// the shim's configuration, runs plugins behind chroot, and has an auxiliary chain.
const multusDaemonConf = `{
  "cniVersion": "0.3.1",
  "chrootDir": "/",
  "logToStderr": true,
  "logLevel": "verbose",
  "binDir": "/opt/cni/bin",
  "cniConfigDir": "/etc/cni/net.d",
  "multusConfigFile": "auto",
  "multusAutoconfigDir": "` + multusRunDir + `",
  "namespaceIsolation": true,
  "globalNamespaces": "default",
  "daemonSocketDir": "/run/multus/socket",
  "socketDir": "/run/multus/socket",
  "auxiliaryCNIChainName": "` + multusChain + `"
}
`

// StartThickMultus installs the shim of Multus on nodes, and starts its daemon there. A
// boot ends the daemon.
func (c *Cluster) StartThickMultus(ctx context.Context, nodes ...*Node) error {
	token, err := c.multusToken(ctx)
	if err != nil {
		return err
	}
	authority, err := os.ReadFile(c.path("pki", "ca.crt"))
	if err != nil {
		return err
	}
	for _, node := range nodes {
		if err := node.startThickMultus(token, authority); err != nil {
			return fmt.Errorf("starting Multus on %s: %w", node.Name, err)
		}
	}
	return nil
}

func (n *Node) startThickMultus(token string, authority []byte) error {
	for name, part := range multusPrograms {
		if err := os.Symlink(filepath.Join(n.cluster.Parts, part), n.Path("/opt/cni/bin/"+name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	primary, err := n.primaryConf()
	if err != nil {
		return err
	}
	conf := filepath.Join(n.dir, "multus-daemon.json")
	files := map[string]string{
		conf:                                     multusDaemonConf,
		n.Path(multusAccount + "/token"):         token,
		n.Path(multusAccount + "/ca.crt"):        string(authority),
		n.Path(multusRunDir + "/10-podnet.conf"): string(primary),
	}
	for path, content := range files {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			return err
		}
	}
	return n.startDaemonWith([]string{"KUBERNETES_SERVICE_HOST=" + controlIPv4, "KUBERNETES_SERVICE_PORT=6443", "MULTUS_NODE_NAME=" + n.Name},
		n.cluster.Parts, multusDaemon, "--config="+conf)
}

// StopThickMultus uninstalls it. The daemon removes the shim's configuration when it ends.
func (c *Cluster) StopThickMultus(ctx context.Context) error {
	var errs []error
	for _, node := range c.Nodes {
		errs = append(errs, node.stopDaemon(multusDaemon, syscall.SIGTERM))
		for _, path := range []string{multusConf, "/run/multus", multusAccount, multusCache, filepath.Dir(MultusNetDir)} {
			errs = append(errs, os.RemoveAll(node.Path(path)))
		}
		for name := range multusPrograms {
			errs = append(errs, os.RemoveAll(node.Path("/opt/cni/bin/"+name)))
		}
	}
	return errors.Join(append(errs, c.removeMultusAPI(ctx))...)
}

// primaryConf returns the primary as a plain configuration, as OVN-Kubernetes writes one.
// With a list, the DEL of Multus lacks the address ranges.
func (n *Node) primaryConf() ([]byte, error) {
	var list struct {
		CNIVersion, Name string
		Plugins          []map[string]any
	}
	if err := json.Unmarshal([]byte(n.PrimaryList()), &list); err != nil {
		return nil, fmt.Errorf("reading the primary's list: %w", err)
	}
	conf := list.Plugins[0]
	conf["cniVersion"], conf["name"] = list.CNIVersion, list.Name
	return json.Marshal(conf)
}
