// SPDX-License-Identifier: Apache-2.0

package mesh

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// stockEnvoy are settings with which istiod sends only what the release of Envoy's own
// project has. Without the first two, Envoy rejects clusters and listeners, without the third
// all listeners, and the pod does not become ready.
var stockEnvoy = suite.IstiodSettings(
	"env.PILOT_ENABLE_METADATA_EXCHANGE=false", // istio.metadata_exchange of TCP and HTTP, and the ALPN istio-peer-exchange
	"env.PILOT_ENABLE_ALPN_FILTER=false",       // istio.alpn, without which a server sees HTTP only at ports that are named so
	"telemetry.enabled=false",                  // istio.stats, Istio's metrics

	"env.ISTIO_DUAL_STACK=true", // Envoy listens in both families, as the stand-in does
	"meshConfig.accessLogFile=/dev/stdout",
	"meshConfig.accessLogFormat=%UPSTREAM_CLUSTER_RAW% %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_TLS_VERSION% %DOWNSTREAM_PEER_URI_SAN%",
)

// installForEnvoy has istiod configure Envoy itself until the test ends, and imports the image.
func installForEnvoy(t *testing.T) {
	t.Helper()
	lab.Check(t, c.LoadIstioImages(t.Context(), "envoy"))
	t.Cleanup(func() {
		lab.Check(t, c.InstallIstio(context.WithoutCancel(t.Context()), suite.DefaultRevision, suite.IstiodSettings()...))
	})
	lab.Check(t, c.InstallIstio(t.Context(), suite.DefaultRevision, stockEnvoy...))
}

// envoyMesh is a namespace that demands mTLS, where a client polls a server on another node.
type envoyMesh struct {
	suite.Namespace
	services []string // the server's, in both families
}

const envoyObjects = `
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {name: strict}
spec: {mtls: {mode: STRICT}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: client}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: server}
---
apiVersion: v1
kind: Service
metadata: {name: server}
spec:
  ipFamilyPolicy: RequireDualStack
  selector: {app: server}
  ports: [{name: http, port: 80, targetPort: 8080}, {name: tcp, port: 81, targetPort: 8081}]
`

// startEnvoyMesh starts both pods.
func startEnvoyMesh(t *testing.T) envoyMesh {
	t.Helper()
	m := envoyMesh{Namespace: c.NewNamespace(t, suite.Restricted, cluster.Injected)}
	m.Kubectl(t, envoyObjects, "apply", "--filename=-")
	ips := m.Kubectl(t, "", "get", "service", "server", "-o", "jsonpath={.spec.clusterIPs[0]} {.spec.clusterIPs[1]}")
	m.services = strings.Fields(ips)
	server := withEnvoy(suite.NewPod("server", c.Nodes[1].Name, "web", ":8080", ":8081"))
	grace := int64(60)
	server.Spec.TerminationGracePeriodSeconds = &grace
	server.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 10}}}
	m.Kubectl(t, suite.JSON(t, appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: metav1.ObjectMeta{Name: "server"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: server.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: server.Labels, Annotations: server.Annotations}, Spec: server.Spec},
		},
	}), "apply", "--filename=-")
	m.Run(t, withEnvoy(suite.NewPod("client", c.Nodes[0].Name, "poll", "http://"+net.JoinHostPort(m.services[0], "80"))))
	m.rolledOut(t)
	return m
}

func (m envoyMesh) rolledOut(t *testing.T) {
	t.Helper()
	m.Kubectl(t, "", "rollout", "status", "deployment/server", suite.KubectlTimeout)
}

// withEnvoy gives a pod Envoy itself as its sidecar, and an identity of its own.
func withEnvoy(pod *corev1.Pod) *corev1.Pod {
	pod = suite.DualStack(pod)
	pod.Annotations["sidecar.istio.io/nativeSidecar"] = "true"
	pod.Annotations["sidecar.istio.io/proxyImage"] = cluster.IstioImage("envoy")
	pod.Spec.ServiceAccountName = pod.Name
	return pod
}

func (m envoyMesh) identity(account string) string {
	return "spiffe://cluster.local/ns/" + m.Name + "/sa/" + account
}

// server returns the name of the server's pod.
func (m envoyMesh) server(t *testing.T) string {
	t.Helper()
	return m.Kubectl(t, "", "get", "pods", "--selector=app=server", "-o", "jsonpath={.items[0].metadata.name}")
}

// answers returns all that a pod's polls were answered with.
func (m envoyMesh) answers(t *testing.T, pod string) []string {
	t.Helper()
	return strings.Split(strings.TrimSpace(m.Kubectl(t, "", "logs", pod, "--container=app")), "\n")
}

// next waits for so many more answers to the client.
func (m envoyMesh) next(t *testing.T, after, want int) (answers []string) {
	t.Helper()
	lab.Eventually(t, func() error {
		if answers = m.answers(t, "client")[after:]; len(answers) < want {
			return fmt.Errorf("the client has had %d more answers, want %d", len(answers), want)
		}
		return nil
	})
	return answers
}

// expectIdentity expects each answer to be from a pod that saw the client's identity.
func (m envoyMesh) expectIdentity(t *testing.T, answers []string) {
	t.Helper()
	for _, answer := range answers {
		by, uri := "By="+m.identity("server")+";", "URI="+m.identity("client")
		if !strings.HasPrefix(answer, "200 server-") || !strings.Contains(answer, by) || !strings.Contains(answer, uri) {
			t.Errorf("the client was answered %q", answer)
		}
	}
}

// expectMutualTLS expects that HTTP, and TCP to both of the Service's addresses, is mTLS
// between the two proxies. To which family of the server the proxy connects is its choice.
func (m envoyMesh) expectMutualTLS(t *testing.T) {
	t.Helper()
	m.expectIdentity(t, m.next(t, len(m.answers(t, "client")), 10))
	for _, ip := range m.services {
		hops, err := m.TryAsk(t.Context(), "client", "tcp", net.JoinHostPort(ip, "81"))
		lab.Check(t, err)
		if len(hops) != 1 || !slices.Contains([]string{"127.0.0.6", "::6"}, hops[0].Client.Addr().Unmap().String()) {
			t.Errorf("the application's client is %+v, want its proxy", hops)
		}
	}
	for proxy, want := range map[string][]string{
		"client":    {"outbound|81||server." + m.Name + ".svc.cluster.local " + net.JoinHostPort(m.services[0], "81")},
		m.server(t): {"inbound|8081||", "TLSv1.3 " + m.identity("client")},
	} {
		lab.Eventually(t, func() error {
			log := m.Kubectl(t, "", "logs", proxy, "--container=istio-proxy")
			if suite.LineWith(log, want...) == "" {
				return fmt.Errorf("the proxy of %s logs no connection %q:\n%s", proxy, want, log)
			}
			return nil
		})
	}
}

// expectClosed expects that the server's proxy answers no pod without an identity.
func (m envoyMesh) expectClosed(t *testing.T) {
	t.Helper()
	v4, _ := m.Addresses(t, m.server(t))
	stranger := suite.Unmeshed(suite.NewPod("stranger", c.Nodes[0].Name, "poll", "http://"+suite.Address(v4, 8080)))
	m.Run(t, stranger)
	lab.Eventually(t, func() error {
		answers := m.answers(t, "stranger")
		if i := slices.IndexFunc(answers, func(answer string) bool { return strings.HasPrefix(answer, "200") }); i >= 0 {
			t.Fatalf("a pod outside the mesh was answered %q", answers[i])
		}
		if len(answers) < 5 {
			return fmt.Errorf("a pod outside the mesh has had %d errors, want 5", len(answers))
		}
		return nil
	})
}
