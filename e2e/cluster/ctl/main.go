// SPDX-License-Identifier: Apache-2.0

// Command ctl starts a test cluster and leaves it running, or stops it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/capture-cni/capture-cni/e2e/cluster"
)

func main() {
	dir := flag.String("dir", "bin/cluster", "directory of the cluster's files")
	parts := flag.String("parts", "bin/parts", "directory of its programs")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: ctl [-dir DIR] [-parts DIR] up|down")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	switch flag.Arg(0) {
	case "up":
		err = up(ctx, *dir, *parts)
	case "down":
		err = down(*dir)
	default:
		flag.Usage()
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

const next = `
export KUBECONFIG=%s PATH=%s:$PATH
kubectl get pods --all-namespaces -o wide

Pods in a namespace with the label istio-injection=enabled get a sidecar, and are captured:

kubectl create namespace shop && kubectl label namespace shop istio-injection=enabled
kubectl -n shop run web --image=%s --image-pull-policy=Never -- serve tcp :8080
kubectl -n shop expose pod web --port=80 --target-port=8080
kubectl -n shop exec web -c web -- /apps ask tcp $(kubectl -n shop get service web -o jsonpath='{.spec.clusterIP}'):80

make cluster-down stops it.
`

func up(ctx context.Context, dir, parts string) error {
	c, err := cluster.Start(ctx, dir, parts, cluster.Ptp, cluster.Runtimes...)
	if err != nil {
		return err
	}
	fmt.Println("the cluster runs; installing the chart")
	if err := errors.Join(c.StartInjector(ctx), c.LoadAgentImage(ctx, "v1"), c.Install(ctx, "image.tag=v1")); err != nil {
		return err
	}
	fmt.Printf(next, c.Kubeconfig(), filepath.Join(c.Dir, "bin"), cluster.AppImage)
	return nil
}

func down(dir string) error {
	c, err := cluster.Open(dir)
	if err != nil {
		return err
	}
	return c.Stop()
}
