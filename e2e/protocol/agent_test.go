// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/kube"
	"github.com/capture-cni/capture-cni/install/pods"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

// startAgent answers requests of the node's pods next to its credentials.
func (n node) startAgent(t *testing.T) (stop func()) {
	t.Helper()
	n.Put(meshed(func(pod *corev1.Pod) { pod.Spec.NodeName = "node-1" }))
	api, err := kube.New(&rest.Config{Host: n.URL, BearerToken: n.Token(), TLSClientConfig: rest.TLSClientConfig{CAData: n.Cert.PEM}})
	lab.Check(t, err)
	server := pods.New(pods.Settings{Socket: config.PodsSocket(n.agentSocket()), Node: "node-1", Meshes: config.Meshes()}, api, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx) }()
	stop = func() { cancel(); lab.Check(t, <-ended) }
	lab.Eventually(t, server.Ready)
	return stop
}

func (n node) agentSocket() string {
	return filepath.Join(filepath.Dir(n.kubeconfig), config.AgentSocketName)
}

// withAgent is conf with the agent's socket.
func (n node) withAgent(extra string) string {
	return strings.Replace(n.conf(extra), `"agentSocket": ""`, fmt.Sprintf(`"agentSocket": %q`, n.agentSocket()), 1)
}

// TestAgentAnswers executes ADD and CHECK with an agent: the plugin alone runs, and no
// request reaches the API server, with credentials or without.
func TestAgentAnswers(t *testing.T) {
	n := newNode(t)
	stop := n.startAgent(t)
	defer stop()
	n.Misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("watch") == "" {
			t.Errorf("%s %s", r.Method, r.URL)
		}
		return false
	})
	for _, hasCredentials := range []bool{true, false} {
		if !hasCredentials {
			lab.Check(t, os.Remove(n.kubeconfig))
		}
		host := sandbox(t)
		if programs := executed(t, call{netns: host.Path(), stdin: n.withAgent("")}); len(programs) != 1 {
			t.Errorf("ADD executes %q", programs)
		}
		expectCaptured(t, host, true)
		call{command: "CHECK", netns: host.Path(), stdin: n.withAgent("")}.run(t).silent(t)
		strict := strings.Replace(n.withAgent(`"status": "strict",`), "1.0.0", "1.1.0", 1)
		call{command: "STATUS", stdin: strict}.run(t).silent(t)
	}
}

// TestNoAgentNoCredentials expects both ways in the errors of ADD and of strict STATUS,
// and that CHECK does not judge, so that the pod is not replaced after a restart of CRI-O.
func TestNoAgentNoCredentials(t *testing.T) {
	t.Parallel()
	n, host := newNode(t), sandbox(t)
	call{netns: host.Path(), stdin: n.conf("")}.run(t).succeeds(t)
	lab.Check(t, os.Remove(n.kubeconfig))
	short := strings.Replace(n.withAgent(""), `"20s"`, `"1s"`, 1)
	call{netns: sandbox(t).Path(), stdin: short}.run(t).fails(t, 11, "asking the node agent at "+filepath.Dir(n.kubeconfig), "asking the API server", "kubeconfig: no such file")
	call{command: "CHECK", netns: host.Path(), stdin: short}.run(t).silent(t)
	strict := strings.Replace(n.withAgent(`"status": "strict",`), "1.0.0", "1.1.0", 1)
	call{command: "STATUS", stdin: strict}.run(t).fails(t, 50, "asking the node agent", "asking the API server")
	call{netns: sandbox(t).Path(), args: "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=batch", stdin: strings.Replace(short, "{", `{"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"kubernetes.io/config.source":"api"}},`, 1)}.run(t).succeeds(t)
}

// TestAgentReturns starts the agent after an ADD on a node without credentials has failed once.
func TestAgentReturns(t *testing.T) {
	t.Parallel()
	n, host := newNode(t), sandbox(t)
	lab.Check(t, os.Remove(n.kubeconfig))
	socket := config.PodsSocket(n.agentSocket())
	lab.Check(t, os.Mkdir(filepath.Dir(socket), 0o700))
	ends, err := net.Listen("unix", socket)
	lab.Check(t, err)
	add := call{netns: host.Path(), stdin: n.withAgent("")}.prepare()
	lab.Check(t, add.Start())
	conn, err := ends.Accept()
	lab.Check(t, errors.Join(err, conn.Close(), ends.Close()))
	defer n.startAgent(t)()
	lab.Check(t, add.Wait())
	expectCaptured(t, host, true)
}

// TestHungAgent has an agent that is stopped, and one that accepts connections and never
// answers: with credentials, ADD takes its other way.
func TestHungAgent(t *testing.T) {
	t.Parallel()
	for name, accepts := range map[string]bool{"stopped": false, "hung": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, host := newNode(t), sandbox(t)
			socket := config.PodsSocket(n.agentSocket())
			lab.Check(t, os.Mkdir(filepath.Dir(socket), 0o700))
			listener, err := net.Listen("unix", socket)
			lab.Check(t, err)
			defer listener.Close()
			if accepts {
				go func() {
					for {
						conn, err := listener.Accept()
						if err != nil {
							return
						}
						_, _ = conn.Write([]byte{lookup.Accepted}) // and nothing else
					}
				}()
			}
			call{netns: host.Path(), stdin: n.withAgent("")}.run(t).succeeds(t)
			expectCaptured(t, host, true)
		})
	}
}

// TestImposter puts a socket of another user in the agent's place: its answer, which
// would leave the pod uncaptured, is not read.
func TestImposter(t *testing.T) {
	t.Parallel()
	n, host := newNode(t), sandbox(t)
	socket := config.PodsSocket(n.agentSocket())
	lab.Check(t, os.Mkdir(filepath.Dir(socket), 0o777))
	lab.Check(t, os.Chmod(filepath.Dir(socket), 0o777))
	for _, directory := range []string{filepath.Dir(n.kubeconfig), filepath.Dir(filepath.Dir(n.kubeconfig))} { // t.TempDir's
		lab.Check(t, os.Chmod(directory, 0o755))
	}
	listener := listenAs(t, 2000, socket)
	defer listener.Close()
	answerAll(listener, fmt.Sprintf(`{"version":%d,"uid":%q,"pod":{"annotations":{}}}`, capture.PodVersion, uid))
	call{netns: host.Path(), stdin: n.withAgent("")}.run(t).succeeds(t)
	expectCaptured(t, host, true)
	lab.Check(t, os.Remove(n.kubeconfig))
	call{netns: sandbox(t).Path(), stdin: strings.Replace(n.withAgent(""), `"20s"`, `"1s"`, 1)}.run(t).fails(t, 11, "uid 2000 listens there: expected uid 0")
}

// listenAs makes a socket as another user: the kernel keeps the user of the thread that
// listens.
func listenAs(t *testing.T, uid uintptr, socket string) net.Listener {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	setUser := func(uid uintptr) {
		const unchanged = ^uintptr(0)
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, unchanged, uid, unchanged); errno != 0 {
			panic(errno) // the thread can't be used any more
		}
	}
	setUser(uid)
	listener, err := net.Listen("unix", socket)
	setUser(0)
	lab.Check(t, err)
	return listener
}

// answerAll sends the same document to every request.
func answerAll(listener net.Listener, document string) {
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte{lookup.Accepted})
			_ = lookup.WriteMessage(conn, []byte(document))
		}
	}()
}
