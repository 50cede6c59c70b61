// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestProbes has the kubelets probe captured pods over TCP. A probe of a captured port
// reaches the proxy, whether or not the application listens there. One of Istio's own
// ports, as which the injector rewrites HTTP probes, reaches its server alone.
func TestProbes(t *testing.T) {
	t.Parallel()
	c.InstallChart(t)
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	var ready, refused []*corev1.Pod
	for _, node := range c.Nodes {
		probed := func(name string, port int, served ...string) *corev1.Pod {
			pod := suite.NewPod(name+"-"+node.Name, node.Name, append([]string{"serve", "tcp"}, served...)...)
			pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
				ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(port)}},
				PeriodSeconds: 1,
			}
			return pod
		}
		ready = append(ready, probed("captured", 8080, ":8080"), probed("proxy-alone", 9999, ":8080"), probed("istio-port", 15021, ":8080", ":15021"))
		refused = append(refused, probed("no-server", 15021, ":8080"))
	}
	n.Create(t, refused...)
	n.Run(t, ready...)
	for _, pod := range append(ready, refused...) {
		n.ExpectCaptured(t, pod.Name)
	}
	for _, pod := range refused {
		lab.Eventually(t, func() error {
			events := n.Kubectl(t, "", "get", "events", "--field-selector=reason=Unhealthy,involvedObject.name="+pod.Name, "-o", "jsonpath={.items[*].message}")
			if !strings.Contains(events, ":15021: connect: connection refused") {
				return errors.New(pod.Name + ": no probe was refused: " + events)
			}
			return nil
		})
		for _, status := range n.Get(t, pod.Name).Status.ContainerStatuses {
			if status.Name == "app" && status.Ready {
				t.Errorf("%s is ready, though nothing listens at the probed port", pod.Name)
			}
		}
	}
}
