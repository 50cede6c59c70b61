// SPDX-License-Identifier: Apache-2.0

// Command kubernetes is every long-running program of a Kubernetes cluster in
// one binary, so that a test cluster is linked once: the name it is called by,
// or else its first argument, chooses the program.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	name := filepath.Base(os.Args[0])
	if name == "kubernetes" && len(os.Args) > 1 {
		name, os.Args = os.Args[1], os.Args[1:]
	}
	commands := map[string]func() *cobra.Command{
		"kube-apiserver":          apiserver.NewAPIServerCommand,
		"kube-controller-manager": controllers.NewControllerManagerCommand,
		"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
		"kube-proxy":              proxy.NewProxyCommand,
		"kubelet":                 newKubelet,
	}
	switch command, known := commands[name]; {
	case known:
		os.Exit(cli.Run(command()))
	case name == "etcd":
		etcdmain.Main(os.Args)
	default:
		fmt.Fprintf(os.Stderr, "%s: no such program here\n", name)
		os.Exit(2)
	}
}

// newKubelet calls the kubelet's function, which has a context from Kubernetes 1.33 on.
func newKubelet() *cobra.Command {
	switch create := any(kubelet.NewKubeletCommand).(type) {
	case func(context.Context) *cobra.Command:
		return create(context.Background())
	default:
		return create.(func() *cobra.Command)()
	}
}
