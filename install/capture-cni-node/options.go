// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/kube"
	"github.com/capture-cni/capture-cni/install/node"
)

// options are the flags of all commands.
type options struct {
	root, mode                          string
	netDir, stateDir, runDir            string
	binDirs                             []string
	binary, netConf                     string
	criSocket, owner                    string
	namespace, serviceAccount, nodeName string
	tokenTTL                            time.Duration
	apiServer, caFile, kubeconfig       string
}

// inCluster is where a pod finds its own credentials.
const inCluster = "/var/run/secrets/kubernetes.io/serviceaccount/"

func (o *options) declare(flags *pflag.FlagSet) {
	flags.StringVar(&o.root, "root", "/", "where the node's file system is seen")
	flags.StringVar(&o.mode, "mode", string(node.Auto), "how the entry gets before the runtime: auto, dropin, insert, owned or multus")
	flags.StringVar(&o.netDir, "net-dir", "/etc/cni/net.d", "where the runtime looks for network configurations, on the node")
	flags.StringSliceVar(&o.binDirs, "bin-dir", []string{"/opt/cni/bin"}, "where the runtime looks for plugins, on the node; more than one is fine")
	flags.StringVar(&o.stateDir, "state-dir", "/var/lib/capture-cni", "where credentials are kept, on the node; has to survive a boot")
	flags.StringVar(&o.runDir, "run-dir", "/run/capture-cni", "where the agent hears the plugin, and credentials go while that disk is full; on the node")
	flags.StringVar(&o.binary, "plugin", "/opt/capture-cni/capture-cni", "the plugin to install, in the agent's own file system")
	flags.StringVar(&o.netConf, "netconf", "", "file with more keys for the plugin's entry (JSON object)")
	flags.StringVar(&o.criSocket, "cri-socket", "", "the runtime's socket in the agent's own file system, to see what it has loaded")
	flags.StringVar(&o.owner, "owner", "capture-cni", "the release that the node belongs to")
	flags.StringVar(&o.namespace, "namespace", os.Getenv("POD_NAMESPACE"), "namespace of the plugin's service account")
	flags.StringVar(&o.serviceAccount, "service-account", "capture-cni", "the plugin's service account, which may get pods")
	flags.StringVar(&o.nodeName, "node-name", os.Getenv("NODE_NAME"), "the Node that tokens end with; empty for none")
	flags.DurationVar(&o.tokenTTL, "token-ttl", 24*time.Hour, "how long a token of the plugin's is good; it is renewed at half of it")
	flags.StringVar(&o.apiServer, "api-server", "", "URL of the API server as the node reaches it (default: the one that the agent uses)")
	flags.StringVar(&o.caFile, "ca-file", inCluster+"ca.crt", "the cluster's CA, in the agent's own file system")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "the agent's own access to the API server (default: that of its pod)")
}

// settings are the flags, read and checked.
func (o *options) settings() (node.Settings, error) {
	s := node.Settings{
		Root: o.root, Mode: node.Mode(o.mode),
		NetDir: o.netDir, BinDirs: o.binDirs, StateDir: o.stateDir, RunDir: o.runDir,
		Binary: o.binary, Owner: o.owner,
		Credentials: node.CredentialSettings{
			TokenSpec: kube.TokenSpec{Namespace: o.namespace, ServiceAccount: o.serviceAccount, Node: o.nodeName, TTL: o.tokenTTL},
			Server:    o.apiServer, CAFile: o.caFile,
		},
	}
	var faults []error
	switch s.Mode {
	case node.Auto, node.DropIn, node.Insert, node.Owned, node.Multus:
	default:
		faults = append(faults, fmt.Errorf("--mode is %q: expected auto, dropin, insert, owned or multus", o.mode))
	}
	for flag, paths := range map[string][]string{"net-dir": {o.netDir}, "bin-dir": o.binDirs, "state-dir": {o.stateDir}, "run-dir": {o.runDir}} {
		for _, path := range paths {
			if !filepath.IsAbs(path) {
				faults = append(faults, fmt.Errorf("--%s is %q: expected an absolute path", flag, path))
			}
		}
	}
	if o.tokenTTL < 10*time.Minute {
		faults = append(faults, fmt.Errorf("--token-ttl is %s: the API server gives no token for less than 10m", o.tokenTTL))
	}
	var keys []byte
	if o.netConf != "" {
		var err error
		keys, err = os.ReadFile(o.netConf)
		faults = append(faults, err)
	}
	var err error
	s.Entry, err = node.ParseEntry(keys, s.Mode, s.StateDir, s.RunDir)
	return s, errors.Join(append(faults, err)...)
}

// connect returns a client with the agent's rights, and completes the settings by
// the URL of the API server.
func (o *options) connect(s *node.Settings) (*kube.Client, error) {
	access, err := o.access()
	if err != nil {
		return nil, fmt.Errorf("finding the API server: %w", err)
	}
	if s.Credentials.Server == "" {
		s.Credentials.Server = access.Host
	}
	return kube.New(access)
}

// api returns a client with the agent's rights and a rate limit of its own.
func (o *options) api() (*kube.Client, error) {
	access, err := o.access()
	if err != nil {
		return nil, err
	}
	return kube.New(access)
}

func (o *options) access() (*rest.Config, error) {
	if o.kubeconfig != "" {
		return clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	}
	return rest.InClusterConfig()
}

// runtime returns a client of the CRI socket, nil where none is configured.
func (o *options) runtime() (*cri.Client, error) {
	if o.criSocket == "" {
		return nil, nil
	}
	return cri.New(o.criSocket)
}

// listenAddress checks an address to serve at.
func listenAddress(flag, address string) error {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("--%s is %q: expected host:port", flag, address)
	}
	return nil
}
