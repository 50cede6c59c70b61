// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Kubeconfig returns the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.path("pki", "admin.kubeconfig") }

// Kubectl runs kubectl as the cluster's administrator and returns its stdout; an
// error contains its stderr.
func (c *Cluster) Kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	return c.run(ctx, c.path("bin", "kubectl"), stdin, args)
}

// API returns a client of the API server, for pods, that sends requests at once.
func (c *Cluster) API() (*rest.RESTClient, error) {
	access, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return nil, err
	}
	access.APIPath, access.GroupVersion, access.NegotiatedSerializer, access.QPS = "/api", &corev1.SchemeGroupVersion, scheme.Codecs.WithoutConversion(), -1
	return rest.RESTClientFor(access)
}

// Helm runs helm likewise.
func (c *Cluster) Helm(ctx context.Context, args ...string) (string, error) {
	return c.run(ctx, filepath.Join(c.Parts, "helm"), "", args)
}

// version returns Kubernetes' version without the patch, such as 1.36.
func (c *Cluster) version(ctx context.Context) (string, error) {
	out, err := c.run(ctx, c.path("bin", "kubelet"), "", []string{"--version"})
	if err != nil {
		return "", err
	}
	version := strings.TrimPrefix(strings.TrimSpace(out), "Kubernetes v")
	return version[:max(0, strings.LastIndex(version, "."))], nil
}

// Environ returns the environment of the administrator's kubectl and helm. What they keep is
// removed with the cluster.
func (c *Cluster) Environ() []string {
	kept := c.path("helm")
	return append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "KUBECACHEDIR="+c.path("kubectl"),
		"HELM_CACHE_HOME="+kept, "HELM_CONFIG_HOME="+kept, "HELM_DATA_HOME="+kept)
}

func (c *Cluster) run(ctx context.Context, program, stdin string, args []string) (string, error) {
	command := exec.CommandContext(ctx, program, args...)
	command.Env = c.Environ()
	command.Stdin = strings.NewReader(stdin)
	var stderr strings.Builder
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}
