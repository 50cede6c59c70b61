// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/install/report"
)

// owned adds a pod that a controller owns. The pod was created some time ago, and may be in deletion.
func (c *cluster) owned(name, kind, owner string, ago time.Duration, ends bool) {
	c.addPod("node-1", name, func(pod *corev1.Pod) {
		pod.Labels = map[string]string{"pod-template-hash": "5d4f"}
		pod.CreationTimestamp = metav1.NewTime(time.Now().Add(-ago))
		if ends {
			pod.DeletionTimestamp = new(metav1.Now())
		}
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&metav1.ObjectMeta{Name: owner}, appsv1.SchemeGroupVersion.WithKind(kind))}
	})
}

// TestPodNames expects the pod for each form of an argument, including the names of owners.
func TestPodNames(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.owned("web-5d4f-old", "ReplicaSet", "web-5d4f", time.Hour, false)
	c.owned("web-5d4f-new", "ReplicaSet", "web-5d4f", time.Minute, false)
	c.owned("web-5d4f-ends", "ReplicaSet", "web-5d4f", time.Second, true)
	c.owned("web-all-5d4f-x", "ReplicaSet", "web-all-5d4f", time.Second, false)
	c.owned("db-0", "StatefulSet", "db", time.Minute, false)
	o := &options{kubeconfig: "/dev/null"}
	for argument, want := range map[string]string{
		"web": "shop/web", "pod/web": "shop/web", "pods/web": "shop/web", "po/web": "shop/web", "other/web": "other/web",
		"deploy/web": "shop/web-5d4f-new", "Deployment/web": "shop/web-5d4f-new", "deployment.apps/web": "shop/web-5d4f-new",
		"rs/web-5d4f": "shop/web-5d4f-new", "sts/db": "shop/db-0",
		"deploy/db": "no pod of Deployment db is in namespace shop", "ds/web": "no pod of DaemonSet web",
		"": `"": expected POD, NAMESPACE/POD`, "/web": `"/web": expected POD`, "a/b/c": `"a/b/c": expected`, "pod/": `"pod/": expected`,
	} {
		o.overrides.Context.Namespace = "shop"
		namespace, name, err := o.podOf(t.Context(), c.client(t), argument)
		got := namespace + "/" + name
		if err != nil {
			got = err.Error()
		}
		if got != want && (err == nil || !strings.Contains(got, want)) {
			t.Errorf("%q: %s, want %s", argument, got, want)
		}
	}
	o.overrides.Context.Namespace, o.overrides.ClusterInfo.Server = "", c.url
	if namespace, _, err := o.podOf(t.Context(), c.client(t), "web"); err != nil || namespace != "default" {
		t.Errorf("without a namespace: %s, %v", namespace, err)
	}
	o.kubeconfig = "no kubeconfig"
	if _, _, err := o.podOf(t.Context(), c.client(t), "web"); err == nil || !strings.HasPrefix(err.Error(), "reading the namespace: ") {
		t.Errorf("without a kubeconfig: %v", err)
	}
}

// TestServiceDestination names a Service instead of an address.
func TestServiceDestination(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for to, want := range map[string]string{
		"10.1.2.3:80": "10.1.2.3:80", "svc/cart:80": "10.96.0.7:80", "service/cart:http": "10.96.0.7:80", "svc/cart.mesh:80": "[fd00::7]:80",
		"svc/cart:443": `no port of Service shop/cart is "443"`, "svc/headless:80": "there is no address of Service shop/headless itself", "svc/cart": `--to is "svc/cart": expected svc/NAME:PORT`,
	} {
		got, err := resolveService(t.Context(), c.client(t), "shop", to)
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", to, got, want)
		}
	}
}

// TestCompletion expects namespaces, pods and nodes of the cluster as completions, and files only for
// check.
func TestCompletion(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.addNode("node-1", 0, state(&report.Pods{}))
	c.addPod("node-2", "web", nil)
	for args, want := range map[string]string{
		"explain -n shop |":      "agent-node-1\nweb\n:4\n", // this API server ignores the namespace of a list
		"explain -n shop web |":  ":4\n",
		"list --namespace |":     "shop\n:4\n",
		"trace --to a -n shop |": "agent-node-1\nweb\n:4\n",
		"test --nodes |":         "node-1\n:4\n",
		"report --nodes |":       "node-1\n:4\n",
		"explain web -n |":       "shop\n:4\n",
		"status |":               ":4\n",
		"check |":                ":0\n",
		"ver|":                   "version\tShow the versions of this plugin and of the agents\n:4\n",
	} {
		words := strings.Fields(strings.TrimSuffix(args, "|"))
		if strings.HasSuffix(args, " |") {
			words = append(words, "")
		}
		connection := []string{"__complete", "--server", c.url, "--kubeconfig", "/dev/null"}
		var out, errors strings.Builder
		if status := execute(t.Context(), append(connection, words...), newScreen(&out), newScreen(&errors)); status != 0 || out.String() != want {
			t.Errorf("%q: status %d, %q, want %q\n%s", args, status, out.String(), want, errors.String())
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.addNode("node-1", 0, state(&report.Pods{}))
	out, _, status := c.run(t, "version")
	if status != 0 {
		t.Errorf("status %d", status)
	}
	expect(t, out, "plugin  ", "agents  1 v0.4.0\n")
}
