// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/backend"
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/kube"
	"github.com/capture-cni/capture-cni/install/node"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// options contains the flags that all commands on a node have, and the objects that the flags describe.
type options struct {
	node.Settings
	netConf, kubeconfig string
	criSockets          []string
	tryKernel           bool
	log                 *slog.Logger
	refusals            *kube.Refusals // records refusals of the API server; nil if the command does not record them

	sockets []string    // the results of findSockets
	runtime *cri.Client // nil with --cri-socket none
}

const inCluster = "/var/run/secrets/kubernetes.io/serviceaccount/"

func (o *options) declare(flags *pflag.FlagSet) {
	o.Settings = node.DefaultSettings("/")
	c := &o.Credentials
	flags.StringVar(&o.Root, "root", o.Root, "path of the node's file system in the agent's own")
	flags.StringVar((*string)(&o.Mode), "mode", string(o.Mode),
		"how the plugin is added to the runtime's CNI configuration: auto, dropin, insert, owned, multus or multus-chain")
	flags.BoolVar(&o.BesideIstioCNI, "beside-istio-cni", false,
		"add the entry also next to istio-cni's, for a migration; never next to one with ambient mode enabled")
	flags.StringVar(&o.NetDir, "net-dir", o.NetDir,
		"directory of the runtime's network configurations, on the node; with --mode multus, of Multus' configurations; "+
			"with --mode multus-chain, of Multus' auxiliary chain")
	flags.StringSliceVar(&o.BinDirs, "bin-dir", o.BinDirs, "directories of the runtime's plugins, on the node; can be repeated")
	flags.StringVar(&o.StateDir, "state-dir", o.StateDir,
		"directory of the credentials and the agent's state, on the node; must survive a reboot")
	flags.StringVar(&o.RunDir, "run-dir", o.RunDir,
		"directory, on the node, of the agent's sockets, the guard's files and the result of the command backend; "+
			"holds the credentials while the disk of --state-dir is full or read-only")
	flags.StringVar(&o.TmpfilesDir, "tmpfiles-dir", "",
		"with --mode multus-chain: directory of systemd-tmpfiles' configuration, on the node, "+
			"for a file that recreates the entry at boot; empty: no file")
	flags.StringVar(&o.Binary, "plugin", o.Binary, "path of the plugin to install, in the agent's own file system")
	flags.StringVar(&o.netConf, "netconf", "", "further keys of the plugin's entry: a JSON object, or a file with one")
	flags.BoolVar(&o.tryKernel, "try-kernel", true,
		"use the result of the command backend since the node's boot; false: assume that the backend works; it must not be auto")
	flags.StringSliceVar(&o.criSockets, "cri-socket", []string{searchSocket},
		"the runtime's CRI socket, in the agent's own file system; can be repeated; "+
			"auto: the known runtimes' sockets below --root; none: the agent does not ask the runtime")
	flags.StringVar(&o.Owner, "owner", o.Owner, "release of this agent; one release owns a node")
	flags.StringVar(&c.Namespace, "namespace", os.Getenv("POD_NAMESPACE"), "namespace of the plugin's service account")
	flags.StringVar(&c.ServiceAccount, "service-account", "capture-cni", "the plugin's service account; needs the permission to get pods")
	flags.StringVar(&c.Node, "node-name", os.Getenv("NODE_NAME"),
		"the agent's Node, to which tokens are bound since Kubernetes 1.31, so that deleting the Node revokes them; empty: unknown")
	flags.BoolVar(&c.OnNode, "token-on-node", true,
		"install credentials for the API server, with which the plugin reads pods while the agent does not answer; "+
			"false: remove them, which needs the agent's own pod in POD_NAMESPACE, POD_NAME and POD_UID")
	flags.DurationVar(&c.TTL, "token-ttl", 24*time.Hour, "lifetime of the plugin's token; the agent renews it after half of that")
	flags.StringVar(&c.Server, "api-server", "", "URL of the API server, as the node reaches it; empty: the URL that the agent uses")
	flags.StringVar(&c.CAFile, "ca-file", inCluster+"ca.crt", "certificates of the cluster's CA, in the agent's own file system")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the agent; empty: the service account of its pod")
}

// prepare validates the flags, and reads the file of --netconf and the backend's verdict. It opens no
// connection.
func (o *options) prepare() (err error) {
	var faults []error
	if !slices.Contains([]report.Mode{report.Auto, report.DropIn, report.Insert, report.Owned, report.Multus, report.MultusChain}, o.Mode) {
		faults = append(faults, fmt.Errorf("--mode is %q: expected auto, dropin, insert, owned, multus or multus-chain", o.Mode))
	}
	for _, flag := range []struct {
		name  string
		paths []string
	}{{"net-dir", []string{o.NetDir}}, {"bin-dir", o.BinDirs}, {"state-dir", []string{o.StateDir}}, {"run-dir", []string{o.RunDir}}} {
		for _, path := range flag.paths {
			if !filepath.IsAbs(path) {
				faults = append(faults, fmt.Errorf("--%s is %q: expected an absolute path", flag.name, path))
			}
		}
	}
	if o.TmpfilesDir != "" {
		for _, flag := range []struct{ name, path string }{{"tmpfiles-dir", o.TmpfilesDir}, {"net-dir", o.NetDir}, {"state-dir", o.StateDir}} {
			if !filepath.IsAbs(flag.path) || strings.ContainsAny(flag.path, " \t\n\"'\\") { // systemd-tmpfiles can't express such a path
				faults = append(faults, fmt.Errorf("--%s is %q: expected, with --tmpfiles-dir, "+
					"an absolute path without white space, quotes and backslashes", flag.name, flag.path))
			}
		}
	}
	if o.Credentials.TTL < 10*time.Minute {
		faults = append(faults, fmt.Errorf("--token-ttl is %s: expected at least 10m, the API server's minimum", o.Credentials.TTL))
	}
	keys := []byte(o.netConf)
	if o.netConf != "" && !strings.HasPrefix(strings.TrimSpace(o.netConf), "{") {
		keys, err = host.ReadFile(o.netConf)
		faults = append(faults, err)
	}
	o.Entry, err = conflist.ParseEntry(keys, o.Mode, o.StateDir, o.RunDir)
	faults = append(faults, err, o.readBackend())
	switch pods := o.PodsSocket(); {
	case err != nil:
	case len(pods) > host.MaxPath:
		faults = append(faults,
			fmt.Errorf("the socket's path %s has %d bytes: expected at most %d; set a shorter --run-dir, "+
				"or a shorter agentSocket if --netconf sets it", pods, len(pods), host.MaxPath))
	case pods != "" && !slices.Contains(append(config.Directories(), filepath.Clean(o.StateDir), filepath.Clean(o.RunDir)),
		filepath.Dir(o.Entry.Conf.AgentSocket)):
		faults = append(faults, fmt.Errorf("the plugin's key \"agentSocket\" is %q: expected agent.sock in --run-dir or --state-dir, "+
			"because the plugin accepts no other directory", o.Entry.Conf.AgentSocket))
	case pods == "" && !o.Credentials.OnNode:
		faults = append(faults,
			errors.New(`--token-on-node is false and the plugin's key "agentSocket" is empty: the plugin could not read pods; set one of the two`))
	}
	o.Credentials.Pod = capture.PodRef{Namespace: os.Getenv("POD_NAMESPACE"), Name: os.Getenv("POD_NAME"), UID: os.Getenv("POD_UID")}
	o.sockets, err = o.findSockets()
	if err == nil && len(o.sockets) > 0 {
		o.runtime, err = cri.New(o.sockets...)
	}
	return errors.Join(append(faults, err)...)
}

// readBackend reads the verdict of the backend's test, unless --try-kernel is false. With the backend
// auto, it then uses the backend that the test chose.
func (o *options) readBackend() (err error) {
	if !o.tryKernel {
		return nil
	}
	o.Backend, err = backend.Read(o.At(o.RunDir))
	if o.Entry.Asked == backend.Auto && o.Backend.Asked == backend.Auto && o.Backend.Chosen != "" {
		o.Entry = o.Entry.With(o.Backend.Chosen)
	}
	return err
}

// api returns a client of the API server with the agent's permissions, and the configuration of this
// access.
func (o *options) api() (client *kube.Client, access *rest.Config, err error) {
	if o.kubeconfig != "" {
		access, err = clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	} else {
		access, err = rest.InClusterConfig()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the agent's access to the API server: %w", err)
	}
	access.Wrap(o.refusals.Observe)
	client, err = kube.New(access)
	return client, access, err
}

// Values of --cri-socket that are no paths.
const (
	searchSocket = "auto"
	noSocket     = "none"
)

// findSockets returns the paths, in the agent's file system, at which the runtime's CRI socket can be.
// It returns none if --cri-socket is none or empty.
func (o *options) findSockets() (paths []string, err error) {
	switch strings.Join(o.criSockets, ",") {
	case searchSocket:
		for _, path := range cri.KnownSockets() {
			paths = append(paths, filepath.Join(o.Root, path))
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
