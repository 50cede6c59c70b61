// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// way is one of capturing pods.
type way struct {
	name            string
	meshed, init    bool
	install, remove func(context.Context, *cluster.Cluster) error
}

func nothing(context.Context, *cluster.Cluster) error { return nil }

var ways = []way{
	{"nothing", false, false, nothing, nothing},
	{"istio-init", true, true, nothing, nothing},
	{"capture-cni", true, false, func(ctx context.Context, c *cluster.Cluster) error { return c.Install(ctx, "image.tag=v1") }, removeCapture},
	{"istio-cni", true, false, func(ctx context.Context, c *cluster.Cluster) error { return c.InstallIstioCNI(ctx) }, removeIstioCNI},
}

func removeCapture(ctx context.Context, c *cluster.Cluster) error {
	return errors.Join(c.Install(ctx, "image.tag=v1", "state=absent", "force=true"), c.Uninstall(ctx))
}

// removeIstioCNI also writes the primary's list again, in which Istio's agent leaves its
// entry.
func removeIstioCNI(ctx context.Context, c *cluster.Cluster) error {
	err := c.UninstallIstioCNI(ctx)
	for _, node := range c.Nodes {
		err = errors.Join(err, os.WriteFile(node.Path("/etc/cni/net.d/"+cluster.NetworkConf), []byte(node.PrimaryList()), 0o600))
	}
	return err
}

// pod returns one with an application and a proxy, which both do nothing.
func (w way) pod(name, node string) *corev1.Pod {
	grace, no, root, uid := int64(1), false, int64(0), int64(1337)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		NodeName: node, TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: &no,
		Containers: []corev1.Container{
			{Name: "app", Image: cluster.AppImage, ImagePullPolicy: corev1.PullNever, Args: []string{"pause"}},
			{Name: "istio-proxy", Image: cluster.AppImage, ImagePullPolicy: corev1.PullNever, Args: []string{"pause"}, SecurityContext: &corev1.SecurityContext{RunAsUser: &uid}},
		},
	}}
	if w.meshed {
		pod.Annotations = map[string]string{"sidecar.istio.io/status": "{}"}
	}
	if w.init {
		pod.Spec.InitContainers = []corev1.Container{{
			Name: "istio-init", Image: cluster.IstioImage("proxyv2"), ImagePullPolicy: corev1.PullNever,
			Args:            lab.IstioInit(),
			SecurityContext: &corev1.SecurityContext{RunAsUser: &root, Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN", "NET_RAW"}}},
		}}
	}
	return pod
}
