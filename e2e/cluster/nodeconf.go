// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
)

const kubeletConf = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: %[1]q}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix://%[5]s
cgroupDriver: cgroupfs
cgroupRoot: /%[2]s
failSwapOn: false
failCgroupV1: false
makeIPTablesUtilChains: false
tlsCertFile: %[3]q
tlsPrivateKeyFile: %[4]q
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
resolvConf: ""
staticPodPath: /etc/kubernetes/manifests
syncFrequency: 1s
fileCheckFrequency: 1s
nodeStatusUpdateFrequency: 2s
nodeStatusReportFrequency: 10s
maxPods: 150
kubeAPIQPS: 200
kubeAPIBurst: 400
evictionHard: {imagefs.available: "0%%", nodefs.available: "0%%", memory.available: 10Mi}
imageGCHighThresholdPercent: 100
enforceNodeAllocatable: []
`

const proxyConf = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: %[1]q}
mode: nftables
hostnameOverride: %[2]s
bindAddress: 0.0.0.0
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
featureGates: {%[3]s}
`

// proxyGates are what the mode nftables needs where it is alpha, by Kubernetes' version.
var proxyGates = map[string]string{"1.29": "NFTablesProxyMode: true", "1.30": "NFTablesProxyMode: true"}

// networkConf is the format of the primary's list, with both families.
const networkConf = `{
  "cniVersion": "1.0.0",
  "name": "podnet",
  "plugins": [
    {
      "type": "ptp",
      "ipam": {
        "type": "host-local",
        "ranges": [[{"subnet": %q}], [{"subnet": %q}]],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]
      }
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`

// NetworkConf is the name of the primary's list on every node.
const NetworkConf = "10-podnet.conflist"

// PrimaryList returns the primary's list as its installer writes it.
func (n *Node) PrimaryList() string {
	return fmt.Sprintf(networkConf, podsIPv4(n.Number), podsIPv6(n.Number))
}

// configure writes a node's configuration, and installs plugins on its disk.
func (n *Node) configure(ctx context.Context) error {
	version, err := n.cluster.version(ctx)
	if err != nil {
		return err
	}
	name := nodeName(n.Number)
	pki := func(file string) string { return n.cluster.path("pki", file) }
	dir := n.cluster.path(name)
	files := map[string]string{
		"kubelet.yaml": fmt.Sprintf(kubeletConf, pki("ca.crt"), n.cgroup(), pki(name+".crt"), pki(name+".key"), n.socket()),
		"proxy.yaml":   fmt.Sprintf(proxyConf, pki("proxy.kubeconfig"), name, proxyGates[version]),
	}
	if n.cluster.Primary == Ptp {
		files["disk"+n.cluster.Primary.List()] = n.PrimaryList()
	}
	maps.Copy(files, n.runtimeFiles())
	for file, content := range files {
		path := filepath.Join(dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, "disk", "etc", "kubernetes", "manifests"), 0o755); err != nil {
		return err
	}
	plugins := filepath.Join(dir, "disk", "opt", "cni", "bin")
	if err := os.MkdirAll(plugins, 0o755); err != nil {
		return err
	}
	for _, plugin := range n.cluster.Primary.plugins() {
		content, err := os.ReadFile(filepath.Join(n.cluster.Parts, plugin))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(plugins, plugin), content, 0o755); err != nil {
			return err
		}
	}
	return nil
}
