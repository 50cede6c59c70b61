// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/entry"
	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/kube"
	"github.com/capture-cni/capture-cni/install/settings"
	"github.com/capture-cni/capture-cni/install/socket"
	"github.com/capture-cni/capture-cni/install/terms"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// options are the flags of all commands.
type options struct {
	root, mode                          string
	netDir, stateDir, runDir            string
	tmpfilesDir                         string
	binDirs                             []string
	binary, netConf                     string
	criSockets                          []string
	owner                               string
	namespace, serviceAccount, nodeName string
	besideIstioCNI, tokenOnNode         bool
	tokenTTL                            time.Duration
	apiServer, caFile, kubeconfig       string
	log                                 *slog.Logger
}

// inCluster is the directory of a pod's own credentials.
const inCluster = "/var/run/secrets/kubernetes.io/serviceaccount/"

func (o *options) declare(flags *pflag.FlagSet) {
	unset := settings.Default("/")
	flags.StringVar(&o.root, "root", unset.Root, "path of the node's file system in the agent's own")
	flags.StringVar(&o.mode, "mode", string(unset.Mode), "how the plugin is added to the runtime's CNI configuration: auto, dropin, insert, owned, multus or multus-chain")
	flags.BoolVar(&o.besideIstioCNI, "beside-istio-cni", false, "write the entry also next to istio-cni's, for a migration; never next to one with ambient mode enabled")
	flags.StringVar(&o.netDir, "net-dir", unset.NetDir, "directory of the runtime's network configurations, on the node; with --mode multus-chain, that of Multus' auxiliary chain")
	flags.StringSliceVar(&o.binDirs, "bin-dir", unset.BinDirs, "directories of the runtime's plugins, on the node; can be repeated")
	flags.StringVar(&o.stateDir, "state-dir", unset.StateDir, "directory of the credentials and the agent's state, on the node; must survive a reboot")
	flags.StringVar(&o.runDir, "run-dir", unset.RunDir, "directory of the agent's socket, on the node; holds the credentials while the disk of --state-dir is full or read-only")
	flags.StringVar(&o.tmpfilesDir, "tmpfiles-dir", "", "with --mode multus-chain: directory of systemd-tmpfiles' configuration, on the node, for a line that recreates the entry at boot; empty: none")
	flags.StringVar(&o.binary, "plugin", unset.Binary, "path of the plugin to install, in the agent's own file system")
	flags.StringVar(&o.netConf, "netconf", "", "file with further keys of the plugin's entry (JSON object)")
	flags.StringSliceVar(&o.criSockets, "cri-socket", []string{searchSocket}, "the runtime's CRI socket, in the agent's own file system; can be repeated: the agent uses the one at which the kubelet's runtime answers; auto: the sockets of containerd, CRI-O, k3s, RKE2, MicroK8s and k0s below --root; none: the agent does not ask the runtime")
	flags.StringVar(&o.owner, "owner", unset.Owner, "release of this agent; one release owns a node")
	flags.StringVar(&o.namespace, "namespace", os.Getenv("POD_NAMESPACE"), "namespace of the plugin's service account")
	flags.StringVar(&o.serviceAccount, "service-account", "capture-cni", "the plugin's service account; needs the permission to get pods")
	flags.StringVar(&o.nodeName, "node-name", os.Getenv("NODE_NAME"), "Node to bind tokens to; deleting the Node revokes them; empty: none")
	flags.BoolVar(&o.tokenOnNode, "token-on-node", true, "install credentials for the API server, with which the plugin reads pods while the agent does not answer; false: remove them, which needs the agent's own pod in POD_NAMESPACE, POD_NAME and POD_UID")
	flags.DurationVar(&o.tokenTTL, "token-ttl", 24*time.Hour, "lifetime of the plugin's token; the agent renews it after half of that")
	flags.StringVar(&o.apiServer, "api-server", "", "URL of the API server, as the node reaches it; empty: the URL that the agent uses")
	flags.StringVar(&o.caFile, "ca-file", inCluster+"ca.crt", "certificates of the cluster's CA, in the agent's own file system")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the agent; empty: the service account of its pod")
}

// settings returns the flags, validated.
func (o *options) settings() (settings.Node, error) {
	s := settings.Node{
		Root: o.root, Mode: terms.Mode(o.mode), BesideIstioCNI: o.besideIstioCNI,
		NetDir: o.netDir, BinDirs: o.binDirs, StateDir: o.stateDir, RunDir: o.runDir, TmpfilesDir: o.tmpfilesDir,
		Binary: o.binary, Owner: o.owner,
		Credentials: settings.CredentialSettings{
			OnNode: o.tokenOnNode, Pod: ownPod(),
			TokenSpec: kube.TokenSpec{Namespace: o.namespace, ServiceAccount: o.serviceAccount, Node: o.nodeName, TTL: o.tokenTTL},
			Server:    o.apiServer, CAFile: o.caFile,
		},
	}
	var faults []error
	switch s.Mode {
	case terms.Auto, terms.DropIn, terms.Insert, terms.Owned, terms.Multus, terms.MultusChain:
	default:
		faults = append(faults, fmt.Errorf("--mode is %q: expected auto, dropin, insert, owned, multus or multus-chain", o.mode))
	}
	for flag, paths := range map[string][]string{"net-dir": {o.netDir}, "bin-dir": o.binDirs, "state-dir": {o.stateDir}, "run-dir": {o.runDir}} {
		for _, path := range paths {
			if !filepath.IsAbs(path) {
				faults = append(faults, fmt.Errorf("--%s is %q: expected an absolute path", flag, path))
			}
		}
	}
	_, err := o.sockets()
	faults = append(faults, err)
	if o.tmpfilesDir != "" {
		faults = append(faults, o.tmpfilesFaults()...)
	}
	if o.tokenTTL < 10*time.Minute {
		faults = append(faults, fmt.Errorf("--token-ttl is %s: expected at least 10m, the API server's minimum", o.tokenTTL))
	}
	var keys []byte
	if o.netConf != "" {
		keys, err = host.ReadFile(o.netConf)
		faults = append(faults, err)
	}
	s.Entry, err = entry.Parse(keys, s.Mode, s.StateDir, s.RunDir)
	if err == nil {
		faults = append(faults, o.socketFaults(s)...)
	}
	return s, errors.Join(append(faults, err)...)
}

// tmpfilesFaults refuses paths that systemd-tmpfiles' configuration can't express.
func (o *options) tmpfilesFaults() (faults []error) {
	for _, flag := range []struct{ name, path string }{{"tmpfiles-dir", o.tmpfilesDir}, {"net-dir", o.netDir}, {"state-dir", o.stateDir}} {
		if !filepath.IsAbs(flag.path) || strings.ContainsAny(flag.path, " \t\n\"'\\") {
			faults = append(faults, fmt.Errorf("--%s is %q: expected, with --tmpfiles-dir, an absolute path without white space, quotes and backslashes", flag.name, flag.path))
		}
	}
	return faults
}

func (o *options) socketFaults(s settings.Node) (faults []error) {
	pods := s.PodsSocket()
	if len(pods) > socket.MaxPath {
		faults = append(faults, fmt.Errorf("the socket's path %s has %d bytes: expected at most %d; set a shorter --run-dir", pods, len(pods), socket.MaxPath))
	}
	if s.Credentials.OnNode {
		return faults
	}
	if pods == "" {
		faults = append(faults, errors.New(`--token-on-node is false and the plugin's key "agentSocket" is empty: the plugin could not read pods; set one of the two`))
	}
	return faults
}

// ownPod returns the agent's own pod, which is outside the mesh.
func ownPod() record.PodRef {
	return record.PodRef{Namespace: os.Getenv("POD_NAMESPACE"), Name: os.Getenv("POD_NAME"), UID: os.Getenv("POD_UID")}
}

// api returns a client with the agent's rights and a rate limit of its own, and the URL
// of the API server.
func (o *options) api() (client *kube.Client, url string, err error) {
	access, err := o.access()
	if err != nil {
		return nil, "", err
	}
	client, err = kube.New(access)
	return client, access.Host, err
}

// access returns the agent's access to the API server.
func (o *options) access() (access *rest.Config, err error) {
	if o.kubeconfig != "" {
		access, err = clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	} else {
		access, err = rest.InClusterConfig()
	}
	if err != nil {
		return nil, fmt.Errorf("reading the agent's access to the API server: %w", err)
	}
	return access, nil
}

// The values of --cri-socket that are no paths.
const (
	searchSocket = "auto"
	noSocket     = "none"
)

// runtime returns a client of the runtime, nil if no CRI socket is configured.
func (o *options) runtime() (*cri.Client, error) {
	sockets, err := o.sockets()
	if err != nil || len(sockets) == 0 {
		return nil, err
	}
	return cri.New(sockets...)
}

// sockets returns where the runtime's CRI socket can be, in the agent's own file system.
func (o *options) sockets() (paths []string, err error) {
	switch strings.Join(o.criSockets, ",") {
	case searchSocket:
		for _, path := range cri.KnownSockets() {
			paths = append(paths, filepath.Join(o.root, path))
		}
		return paths, nil
	case noSocket, "":
		return nil, nil
	}
	for _, path := range o.criSockets {
		if !filepath.IsAbs(path) {
			return nil, fmt.Errorf("--cri-socket is %q: expected auto, none or absolute paths", path)
		}
	}
	return o.criSockets, nil
}
