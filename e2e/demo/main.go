// SPDX-License-Identifier: Apache-2.0

// Command demo shows the plugin at work on one machine. A node, a pod and the
// network outside are network namespaces, and the API server is a small one that
// serves manifests. The rest is real: the plugin binary, a conflist executed by
// libcni, the kernel's rules, and packets.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
)

func main() {
	bin := flag.String("bin", "../../bin", "directory of the CNI plugins")
	manifests := flag.String("pods", "pods", "directory of pod manifests that the API server serves")
	own := flag.String("pod", "", "manifest of your own pod (default web.yaml of -pods)")
	flag.Parse()
	if err := run(*bin, *manifests, *own); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(bin, manifests, own string) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces need root: run it with sudo")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()

	meshed, err := kubeapi.LoadPod(orDefault(own, filepath.Join(manifests, "web.yaml")))
	if err != nil {
		return err
	}
	plain, err := kubeapi.LoadPod(filepath.Join(manifests, "batch.yaml"))
	if err != nil {
		return err
	}

	n, err := newNode(bin, meshed)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, n.Close())
		printLine("Everything is removed.")
	}()
	if err := n.api.LoadDirectory(manifests); err != nil {
		return err
	}
	n.api.Put(meshed)
	printLine("The node and the network outside are up. The API server is %s.", n.api.URL)

	if err := showMeshed(ctx, n, meshed); err != nil {
		return err
	}
	return showPlain(ctx, n, plain)
}

func showMeshed(ctx context.Context, n *node, manifest *corev1.Pod) error {
	heading("1. Pod %s/%s starts", manifest.Namespace, manifest.Name)
	p, err := n.startPod(ctx, manifest, nil)
	if err != nil {
		return err
	}
	defer p.stop()
	showAnnotations(manifest)
	showTimes(p)
	if err := serve(n, p); err != nil {
		return err
	}
	heading("2. Which server answers its connections")
	showTraffic(n, p)
	heading("3. The rules in its network namespace, in nft's syntax")
	return showRules(n, p, manifest)
}

func showPlain(ctx context.Context, n *node, manifest *corev1.Pod) error {
	heading("4. The API server is stopped, and pod %s/%s, which is not in the mesh, starts", manifest.Namespace, manifest.Name)
	if err := n.api.Close(); err != nil {
		return fmt.Errorf("stopping the API server: %w", err)
	}
	p, err := n.startPod(ctx, manifest, map[string]string{"kubernetes.io/config.source": "api"})
	if err != nil {
		return err
	}
	defer p.stop()
	showTimes(p)
	if err := serve(n, p); err != nil {
		return err
	}
	showTraffic(n, p)
	return nil
}

func orDefault(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}
