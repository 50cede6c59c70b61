// SPDX-License-Identifier: Apache-2.0

// Command istiocni stands in for Istio's CNI plugin: it looks up every pod, and
// captures injected ones by iptables, with Istio's rules for a pod without
// annotations. It does not check for rules of other plugins.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/containernetworking/plugins/pkg/ns"
	corev1 "k8s.io/api/core/v1"
)

const rules = `*nat
-N ISTIO_INBOUND
-N ISTIO_IN_REDIRECT
-N ISTIO_OUTPUT
-N ISTIO_REDIRECT
-A ISTIO_INBOUND -p tcp --dport 15008 -j RETURN
-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001
-A ISTIO_IN_REDIRECT -p tcp -j REDIRECT --to-ports 15006
-A PREROUTING -p tcp -j ISTIO_INBOUND
-A ISTIO_INBOUND -p tcp --dport 15020 -j RETURN
-A ISTIO_INBOUND -p tcp --dport 15021 -j RETURN
-A ISTIO_INBOUND -p tcp --dport 15090 -j RETURN
-A ISTIO_INBOUND -p tcp -j ISTIO_IN_REDIRECT
-A OUTPUT -j ISTIO_OUTPUT
-A ISTIO_OUTPUT -o lo -s 127.0.0.6/32 -j RETURN
-A ISTIO_OUTPUT -o lo ! -d 127.0.0.1/32 -p tcp ! --dport 15008 -m owner --uid-owner 1337 -j ISTIO_IN_REDIRECT
-A ISTIO_OUTPUT -o lo -m owner ! --uid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -m owner --uid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -o lo ! -d 127.0.0.1/32 -p tcp ! --dport 15008 -m owner --gid-owner 1337 -j ISTIO_IN_REDIRECT
-A ISTIO_OUTPUT -o lo -m owner ! --gid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -m owner --gid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -d 127.0.0.1/32 -j RETURN
-A ISTIO_OUTPUT -j ISTIO_REDIRECT
COMMIT
`

// conf is the part of the installer's entry that this stand-in uses.
type conf struct {
	types.PluginConf
	RunDir            string   `json:"cni_agent_run_dir"`
	ExcludeNamespaces []string `json:"exclude_namespaces"`
}

func main() {
	nothing := func(*skel.CmdArgs) error { return nil }
	skel.PluginMainFuncs(skel.CNIFuncs{Add: add, Check: nothing, Del: nothing}, version.All, "a stand-in for istio-cni")
}

func add(args *skel.CmdArgs) error {
	var c conf
	if err := json.Unmarshal(args.StdinData, &c); err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}
	if err := version.ParsePrevResult(&c.PluginConf); err != nil {
		return err
	}
	if c.PrevResult == nil {
		c.PrevResult = &current.Result{CNIVersion: current.ImplementedSpecVersion}
	}
	identity := map[string]string{}
	for pair := range strings.SplitSeq(args.Args, ";") {
		key, value, _ := strings.Cut(pair, "=")
		identity[key] = value
	}
	if namespace := identity["K8S_POD_NAMESPACE"]; !slices.Contains(c.ExcludeNamespaces, namespace) {
		pod, err := lookup(c.RunDir+"/istio-cni-kubeconfig", namespace, identity["K8S_POD_NAME"])
		if err != nil {
			return err
		}
		if wanted(pod) {
			if err := ns.WithNetNSPath(args.Netns, func(ns.NetNS) error { return install() }); err != nil {
				return err
			}
		}
	}
	return types.PrintResult(c.PrevResult, c.CNIVersion)
}

func wanted(pod *corev1.Pod) bool {
	containers := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	has := func(name string) bool {
		return slices.ContainsFunc(containers, func(c corev1.Container) bool { return c.Name == name })
	}
	_, injected := pod.Annotations["sidecar.istio.io/status"]
	return injected && has("istio-proxy") && !has("istio-init")
}

func install() error {
	command := exec.CommandContext(context.Background(), "iptables-nft-restore", "--noflush")
	command.Stdin = strings.NewReader(rules)
	if out, err := command.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("iptables-nft-restore: %s", out), err)
	}
	return nil
}
