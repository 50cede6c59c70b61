// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	current "github.com/containernetworking/cni/pkg/types/100"
	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// Addresses from the ranges reserved for documentation.
const (
	podsIPv4, podsIPv6       = "192.0.2.0/24", "2001:db8:2::/64"
	gatewayIPv4, gatewayIPv6 = "203.0.113.1", "2001:db8:113::1"
	outsideIPv4, outsideIPv6 = "203.0.113.2", "2001:db8:113::2"
)

// conflist is a node's in /etc/cni/net.d: an interface plugin, then ours.
const conflist = `{
  "cniVersion": "1.0.0",
  "name": "demo",
  "plugins": [
    {
      "type": "bridge", "bridge": "demo0", "isDefaultGateway": true,
      "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": %q}], [{"subnet": %q}]]}
    },
    {
      "type": "capture-cni", "kubeconfig": %q,
      "capabilities": {"io.kubernetes.cri.pod-annotations": true}
    }
  ]
}`

// node is a node of a cluster, with the network outside.
type node struct {
	host, outside *lab.Host
	api           *kubeapi.Server
	dir           string
	runtime       *libcni.CNIConfig
	network       *libcni.NetworkConfigList
	clock         *stopwatch
	excluded      exclusions // from the meshed pod's manifest
	serving       bool       // the servers outside are up
}

func newNode(bin string, meshed *corev1.Pod) (n *node, err error) {
	n = &node{excluded: exclusionsOf(meshed)}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	if n.dir, err = os.MkdirTemp("", "capture-cni-demo-"); err != nil {
		return n, fmt.Errorf("creating a directory: %w", err)
	}
	if err := n.connect(); err != nil {
		return n, err
	}
	if err := n.startAPI(); err != nil {
		return n, err
	}
	kubeconfig, err := n.api.WriteKubeconfig(n.dir)
	if err != nil {
		return n, err
	}
	n.network, err = libcni.ConfListFromBytes(fmt.Appendf(nil, conflist,
		filepath.Join(n.dir, "leases"), podsIPv4, podsIPv6, kubeconfig))
	if err != nil {
		return n, fmt.Errorf("reading the conflist: %w", err)
	}
	if bin, err = filepath.Abs(bin); err != nil {
		return n, fmt.Errorf("finding the plugins: %w", err)
	}
	if err := os.Setenv(config.DirectoryVariable, n.dir); err != nil {
		return n, fmt.Errorf("allowing the directory of the credentials: %w", err)
	}
	n.clock = &stopwatch{DefaultExec: invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: os.Stderr}}}
	n.runtime = libcni.NewCNIConfigWithCacheDir([]string{bin}, filepath.Join(n.dir, "cache"), n.clock)
	return n, nil
}

// connect creates the node and the outside, and routes between outside and pods.
func (n *node) connect() (err error) {
	if n.host, err = lab.NewHost(); err != nil {
		return err
	}
	if n.outside, err = lab.NewHost(); err != nil {
		return err
	}
	return errors.Join(
		n.host.AddAddresses("lo"), n.outside.AddAddresses("lo"),
		lab.Link(
			lab.Interface{Host: n.host, Name: "eth0", Addresses: []string{gatewayIPv4 + "/24", gatewayIPv6 + "/64"}},
			lab.Interface{Host: n.outside, Name: "eth0", Addresses: []string{
				outsideIPv4 + "/24", outsideIPv6 + "/64", n.excluded.addresses[0] + "/32", n.excluded.addresses[1] + "/128",
			}}),
		n.host.AddDefaultRoute(outsideIPv4), n.host.AddDefaultRoute(outsideIPv6),
		n.outside.AddDefaultRoute(gatewayIPv4), n.outside.AddDefaultRoute(gatewayIPv6),
		n.host.Do(forward),
	)
}

// forward makes the calling thread's namespace a router, as a node is.
func forward() error {
	for _, key := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		if err := os.WriteFile("/proc/sys/net/"+key, []byte("1"), 0); err != nil {
			return fmt.Errorf("switching forwarding on: %w", err)
		}
	}
	return nil
}

// startAPI serves on the node's loopback interface, from where the plugin connects.
func (n *node) startAPI() error {
	var listener net.Listener
	err := n.host.Do(func() (err error) {
		listener, err = net.Listen("tcp", "127.0.0.1:6443")
		return err
	})
	if err != nil {
		return fmt.Errorf("listening for the API server: %w", err)
	}
	n.api, err = kubeapi.Start(kubeapi.WithListener(listener))
	return err
}

// Close removes all that newNode created.
func (n *node) Close() error {
	var errs []error
	if n.api != nil {
		errs = append(errs, n.api.Close())
	}
	for _, host := range []*lab.Host{n.host, n.outside} {
		if host != nil {
			errs = append(errs, host.Close())
		}
	}
	return errors.Join(append(errs, os.RemoveAll(n.dir))...)
}

// pod is a pod's sandbox on the node.
type pod struct {
	*lab.Host
	result *current.Result
	times  []pluginTime
	stop   func()
}

// startPod does what a container runtime does for a new pod. Plugins receive the
// annotations, if any.
func (n *node) startPod(ctx context.Context, manifest *corev1.Pod, annotations map[string]string) (*pod, error) {
	sandbox, err := lab.NewHost()
	if err != nil {
		return nil, err
	}
	// As the loopback plugin does, which a runtime executes first.
	if err := sandbox.AddAddresses("lo"); err != nil {
		return nil, errors.Join(err, sandbox.Close())
	}
	call := &libcni.RuntimeConf{
		ContainerID: "demo-" + manifest.Name, NetNS: sandbox.Path(), IfName: "eth0",
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", manifest.Namespace},
			{"K8S_POD_NAME", manifest.Name},
			{"K8S_POD_UID", string(manifest.UID)},
		},
		CapabilityArgs: map[string]any{},
	}
	if annotations != nil {
		call.CapabilityArgs["io.kubernetes.cri.pod-annotations"] = annotations
	}
	p := &pod{Host: sandbox}
	n.clock.times = nil
	err = n.host.Do(func() error {
		result, err := n.runtime.AddNetworkList(ctx, n.network, call)
		if err != nil {
			return fmt.Errorf("starting pod %s: %w", manifest.Name, err)
		}
		p.result, err = current.NewResultFromResult(result)
		return err
	})
	p.times = n.clock.times
	p.stop = func() {
		err := n.host.Do(func() error { return n.runtime.DelNetworkList(ctx, n.network, call) })
		if err := errors.Join(err, sandbox.Close()); err != nil {
			fmt.Fprintln(os.Stderr, "demo: stopping pod:", err)
		}
	}
	if err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

// stopwatch executes plugins and records how long each took.
type stopwatch struct {
	invoke.DefaultExec
	times []pluginTime
}

type pluginTime struct {
	plugin string
	took   time.Duration
}

// ExecPlugin implements libcni's invoke.Exec.
func (s *stopwatch) ExecPlugin(ctx context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	start := time.Now()
	out, err := s.DefaultExec.ExecPlugin(ctx, path, stdin, env)
	s.times = append(s.times, pluginTime{filepath.Base(path), time.Since(start)})
	return out, err
}
