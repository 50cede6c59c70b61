// SPDX-License-Identifier: Apache-2.0

// Package apiserver runs the node agent and the plugin with a real API server, on nodes
// that consist of directories.
package apiserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
)

func TestMain(m *testing.M) { os.Exit(machine.Main(m)) }

// apiServer is a real API server with the chart's objects. It has one Node, and no
// kubelet: the tests run the agent with its pod's account.
type apiServer struct{ *cluster.Cluster }

func startAPIServer(t *testing.T) apiServer {
	t.Helper()
	lab.RequireRoot(t)
	c, err := cluster.Start(t.Context(), machine.ShortDir(t), "../../../bin/parts", cluster.Ptp)
	if c != nil {
		t.Cleanup(func() { lab.Check(t, c.Stop()) })
	}
	lab.Check(t, err)
	lab.Check(t, c.Install(t.Context(), "image.tag=none"))
	s := apiServer{c}
	s.createNode(t)
	s.kubectl(t, "create", "namespace", "shop")
	for _, namespace := range []string{"shop", cluster.Namespace} {
		s.kubectl(t, "--namespace", namespace, "wait", "--for=create", "serviceaccount/default")
	}
	s.create(t, `{"apiVersion": "v1", "kind": "Pod", "metadata": {"namespace": "capture-cni", "name": "agent"},
		"spec": {"nodeName": "node-1", "serviceAccountName": "capture-cni-node", "containers": [{"name": "agent", "image": "none"}]}}`)
	return s
}

func (s apiServer) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := s.Kubectl(context.WithoutCancel(t.Context()), "", args...)
	lab.Check(t, err)
	return out
}

func (s apiServer) create(t *testing.T, object string) {
	t.Helper()
	_, err := s.Kubectl(t.Context(), object, "create", "-f", "-")
	lab.Check(t, err)
}

func (s apiServer) createNode(t *testing.T) {
	t.Helper()
	s.create(t, `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}}`)
}

// node makes a node of directories with meshed pods of these names.
func (s apiServer) node(t *testing.T, pods ...string) *machine.Node {
	t.Helper()
	n := machine.NewDirectories(t)
	n.InstallOthers(t)
	n.UIDs = map[string]string{}
	for _, pod := range pods {
		s.createMeshed(t, n, pod, "")
	}
	s.writeAccess(t, n)
	return n
}

func (s apiServer) createMeshed(t *testing.T, n *machine.Node, name, annotations string) {
	t.Helper()
	s.create(t, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod",
		"metadata": {"namespace": "shop", "name": %q, "annotations": {"sidecar.istio.io/status": "{}"%s}},
		"spec": {"nodeName": "node-1", "containers": [{"name": "app", "image": "none"}, {"name": "istio-proxy", "image": "none", "args": ["proxy", "sidecar"]}]}}`,
		name, annotations))
	n.UIDs[name] = s.kubectl(t, "--namespace", "shop", "get", "pod", name, "-o", "jsonpath={.metadata.uid}")
}

// writeAccess writes the files that the agent's pod has: its token, which names its pod
// and its node, and the cluster's CA.
func (s apiServer) writeAccess(t *testing.T, n *machine.Node) {
	t.Helper()
	dir := t.TempDir()
	token := s.kubectl(t, "--namespace", cluster.Namespace, "create", "token", "capture-cni-node", "--bound-object-kind=Pod", "--bound-object-name=agent")
	ca, err := os.ReadFile(filepath.Join(s.Dir, "pki", "ca.crt"))
	lab.Check(t, err)
	address := s.kubectl(t, "config", "view", "-o", "jsonpath={.clusters[0].cluster.server}")
	n.Access = dir + "/kubeconfig"
	for file, content := range map[string]string{"token": strings.TrimSpace(token), "ca.crt": string(ca), "kubeconfig": fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: agent, user: {tokenFile: %q}}]
contexts: [{name: test, context: {cluster: test, user: agent}}]
current-context: test
`, address, dir+"/ca.crt", dir+"/token")} {
		lab.Check(t, os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600))
	}
}

// startAgent runs the agent with the chart's namespace.
func (s apiServer) startAgent(t *testing.T, n *machine.Node) *machine.Agent {
	t.Helper()
	return n.Start(t, "--mode", "insert", "--namespace", cluster.Namespace)
}

// replaceKeys makes the API server issue tokens with another key, and accept no other.
func (s apiServer) replaceKeys(t *testing.T) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	lab.Check(t, err)
	encoded, err := x509.MarshalECPrivateKey(key)
	lab.Check(t, err)
	lab.Check(t, s.StopAPI())
	lab.Check(t, os.WriteFile(filepath.Join(s.Dir, "pki", "accounts.key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded}), 0o600))
	lab.Check(t, s.StartAPI(t.Context()))
}

// claims are what the plugin's token says.
type claims struct {
	Audiences       []string `json:"aud"`
	Issued, Expires int64
	Kubernetes      struct {
		Node, Pod      *struct{ Name string }
		ServiceAccount struct{ Name string }
	} `json:"kubernetes.io"`
}

func readClaims(t *testing.T, n *machine.Node) (c claims) {
	t.Helper()
	token, err := os.ReadFile(n.StateDir + "/token")
	lab.Check(t, err)
	parts := strings.Split(string(token), ".")
	if len(parts) != 3 {
		t.Fatalf("the token has %d parts", len(parts))
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	lab.Check(t, err)
	lab.Check(t, json.Unmarshal(text, &c))
	times := struct{ Iat, Exp int64 }{}
	lab.Check(t, json.Unmarshal(text, &times))
	c.Issued, c.Expires = times.Iat, times.Exp
	return c
}

// TestAPIServer runs the agent and the plugin against a real API server, with the rights
// that the chart grants: what the stand-in of the other tests takes for granted.
func TestAPIServer(t *testing.T) {
	t.Parallel()
	s := startAPIServer(t)
	t.Run("credentials", s.testCredentials)
	t.Run("rights", s.testRights)
	t.Run("events", s.testEvents)
	t.Run("node deleted", s.testNodeDeleted)
	t.Run("keys replaced", s.testKeysReplaced)
	t.Run("applied twice", s.testApplied)
}

func (s apiServer) testCredentials(t *testing.T) {
	n := s.node(t, "credentials")
	a := s.startAgent(t, n)
	a.Ready(t)
	got := readClaims(t, n)
	if life := got.Expires - got.Issued; life != 24*3600 {
		t.Errorf("the token lives for %d s", life)
	}
	if k := got.Kubernetes; k.ServiceAccount.Name != "capture-cni" || k.Pod != nil || k.Node == nil || k.Node.Name != "node-1" || len(got.Audiences) != 1 {
		t.Errorf("the token says %+v", got)
	}
	lab.Check(t, n.StartAndStop(t, "credentials")) // by the agent
	a.Stop(t)
	lab.Check(t, n.StartAndStop(t, "credentials")) // by the token
	if log := a.Log.String(); strings.Contains(log, "forbidden") {
		t.Errorf("the chart grants too little: %s", log)
	}
}

// testRights takes one right away: /readyz, or the error of the ADD, names it.
func (s apiServer) testRights(t *testing.T) {
	for _, tt := range []struct {
		name, binding, says string
	}{
		{"token", "rolebinding/capture-cni-node", `cannot create resource "serviceaccounts/token"`},
		{"pods", "clusterrolebinding/capture-cni-node", `cannot list resource "pods"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := s.node(t)
			s.revoke(t, tt.binding)
			a := s.startAgent(t, n)
			lab.Eventually(t, func() error {
				status, body := a.Get("/readyz")
				if status != http.StatusServiceUnavailable || !strings.Contains(body, tt.says) {
					return fmt.Errorf("status %d: %s", status, body)
				}
				return nil
			})
		})
	}
	t.Run("pods of the plugin", func(t *testing.T) {
		n := s.node(t, "unreadable")
		s.startAgent(t, n).StopOnceReady(t)
		s.revoke(t, "clusterrolebinding/capture-cni")
		lab.Eventually(t, func() error {
			out, err := n.Call("ADD", "unreadable", machine.Sandbox(t).Path(), "1s")
			if err == nil || !strings.Contains(out, `cannot get resource \"pods\"`) {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	})
}

// revoke removes the agent's or the plugin's account from a binding until the test ends.
func (s apiServer) revoke(t *testing.T, binding string) {
	t.Helper()
	rename := func(name string) {
		s.kubectl(t, "--namespace", cluster.Namespace, "patch", binding, "--type=json", "--patch", `[{"op": "replace", "path": "/subjects/0/name", "value": "`+name+`"}]`)
	}
	name := s.kubectl(t, "--namespace", cluster.Namespace, "get", binding, "-o", "jsonpath={.subjects[0].name}")
	rename("another-account")
	t.Cleanup(func() { rename(name) })
}

// testEvents has ADDs of a pod fail: its Event counts them, which takes the right to
// patch and passes the admission policy of the chart.
func (s apiServer) testEvents(t *testing.T) {
	n := s.node(t)
	s.createMeshed(t, n, "misspelt", `, "traffic.sidecar.istio.io/excludeInboundPorts": "http"`)
	a := s.startAgent(t, n)
	a.Ready(t)
	for _, count := range []string{"1", "2", "3"} {
		if _, err := n.StartPod(t, "misspelt"); err == nil {
			t.Fatal("a misspelt annotation is taken")
		}
		lab.Eventually(t, func() error {
			found := s.kubectl(t, "--namespace", "shop", "get", "events", "-o", "jsonpath={range .items[*]}{.reason} {.involvedObject.uid} {.count} {.message};{end}")
			if want := "CaptureFailed " + n.UIDs["misspelt"] + " " + count + " "; !strings.HasPrefix(found, want) || strings.Count(found, ";") != 1 || !strings.Contains(found, "excludeInboundPorts") {
				return fmt.Errorf("the Events are %q, want one that begins with %q\n%s", found, want, a.Log)
			}
			return nil
		})
	}
}

// testNodeDeleted deletes the Node, which revokes the token that is bound to it. Pods
// start by the agent, and no unbound token takes its place. The next one is of the new
// Node.
func (s apiServer) testNodeDeleted(t *testing.T) {
	n := s.node(t, "orphan")
	s.startAgent(t, n).StopOnceReady(t)
	before := readClaims(t, n)
	s.kubectl(t, "delete", "node", "node-1")
	lab.Eventually(t, func() error {
		out, err := n.Call("ADD", "orphan", machine.Sandbox(t).Path(), "1s")
		if err == nil || !strings.Contains(out, "Unauthorized") {
			return fmt.Errorf("the token of the deleted Node is good: %w: %s", err, out)
		}
		return nil
	})
	a := s.startAgent(t, n)
	a.WaitForLog(t, `nodes \"node-1\" not found`)
	lab.Check(t, n.StartAndStop(t, "orphan"))
	if now := readClaims(t, n); now.Issued != before.Issued {
		t.Errorf("the token is %+v", now)
	}
	a.Stop(t)
	s.createNode(t)
	s.startAgent(t, n).Ready(t)
	lab.Eventually(t, func() error {
		if now := readClaims(t, n); now.Issued == before.Issued || now.Kubernetes.Node == nil {
			return fmt.Errorf("the token is %+v", now)
		}
		return n.StartAndStop(t, "orphan")
	})
}

// testKeysReplaced replaces the keys of all tokens while no agent runs.
func (s apiServer) testKeysReplaced(t *testing.T) {
	n := s.node(t, "rotated")
	s.startAgent(t, n).StopOnceReady(t)
	s.replaceKeys(t)
	if out, err := n.Call("ADD", "rotated", machine.Sandbox(t).Path(), "1s"); err == nil || !strings.Contains(out, "Unauthorized") {
		t.Errorf("%v: %s", err, out)
	}
	s.writeAccess(t, n) // as a kubelet does
	s.startAgent(t, n).Ready(t)
	lab.Check(t, n.StartAndStop(t, "rotated"))
}
