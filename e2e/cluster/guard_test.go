// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/cluster"
)

// attentive has the guard look often.
var attentive = []string{"guard.round=2s", "guard.refresh=2s"}

// TestGuardFindsEarlyPods creates meshed pods before there is any agent: each
// of them is found and put right soon after the guard has come.
func TestGuardFindsEarlyPods(t *testing.T) {
	uninstall(t)
	s := newSpace(t, restricted, cluster.Injected)
	var pods []*corev1.Pod
	for i := range 20 {
		pods = append(pods, server(fmt.Sprintf("web-%d", i), c.Nodes[i%len(c.Nodes)].Name))
	}
	s.run(t, pods...)
	for _, pod := range pods {
		if rules := s.rules(t, pod.Name); rules.Backend != "" {
			t.Fatalf("%s holds %+v", pod.Name, rules)
		}
	}
	install(t, attentive...)
	ready := time.Now()
	eventually(t, func() error {
		captured := 0
		for _, node := range c.Nodes {
			here, err := s.countCaptured(t.Context(), node)
			if err != nil {
				return err
			}
			captured += here
		}
		if captured != len(pods) {
			return fmt.Errorf("%d of %d pods are captured", captured, len(pods))
		}
		return nil
	})
	t.Logf("all repaired %s after the agents were ready", time.Since(ready).Round(100*time.Millisecond))
}

// countCaptured counts a node's captured pods.
func (s space) countCaptured(ctx context.Context, node *cluster.Node) (captured int, err error) {
	sandboxes, err := node.Sandboxes(ctx)
	if err != nil {
		return 0, err
	}
	for _, found := range sandboxes {
		if found.Namespace != s.name {
			continue
		}
		rules, err := inspect(found)
		if err != nil {
			return 0, err
		}
		if rules.Backend != "" {
			captured++
		}
	}
	return captured, nil
}

// TestGuardRepairs takes the rules out of a pod that runs, and changes them:
// they come back, and connections live on. One through the proxy can't outlive
// its rules: without them the kernel redirects nothing, and the pod answers
// with a reset, before anybody could repair it.
func TestGuardRepairs(t *testing.T) {
	install(t, attentive...)
	s := newSpace(t, restricted, cluster.Injected)
	web, client := server("web", c.Nodes[0].Name), newPod("client", c.Nodes[1].Name, "pause")
	echo := web.Spec.Containers[0].DeepCopy()
	echo.Name, echo.Args = "echo", []string{"echo", ":7000"}
	web.Spec.Containers = append(web.Spec.Containers, *echo)
	s.run(t, web, unmeshed(client))

	proxied, alive := s.holdConnection(t, "client", "web")
	if proxied != "web/inbound" {
		t.Fatalf("on the way are %q", proxied)
	}
	s.nft(t, "web", "insert", "rule", "inet", "capture-cni", "nat_PREROUTING", "return")
	s.isRepaired(t, "client", "web")
	alive()

	eventually(t, func() error {
		s.nft(t, "web", "delete", "table", "inet", "capture-cni")
		if proxied, alive = s.holdConnection(t, "client", "web"); proxied != "" {
			return errors.New("the guard was faster each time")
		}
		return nil
	})
	s.isRepaired(t, "client", "web")
	alive()
}

// isRepaired waits until connections between two pods are captured again.
func (s space) isRepaired(t *testing.T, from, to string) {
	t.Helper()
	v4, _ := s.addresses(t, to)
	began := time.Now()
	eventually(t, func() error {
		hops, err := s.tryAsk(t.Context(), from, "tcp", address(v4, 8080))
		if got := names(hops); err == nil && got != to+"/inbound "+to+"/app" {
			err = fmt.Errorf("on the way are %s", got)
		}
		return err
	})
	t.Logf("repaired within %s", time.Since(began).Round(100*time.Millisecond))
}

// TestGuardReports loosens a running pod's annotations: that is told, and the
// pod is captured as before, even if its rules have to be put back.
func TestGuardReports(t *testing.T) {
	install(t, attentive...)
	s := newSpace(t, restricted, cluster.Injected)
	s.run(t, server("loosened", c.Nodes[0].Name))
	before := s.rules(t, "loosened")
	s.isExplained(t, "loosened", "state        captured")
	eventually(t, func() error { // the agent hears of it beside the plugin's answer
		if said := s.explain(t, "loosened"); !strings.Contains(said, ": captured by nftables") {
			return fmt.Errorf("its last ADD is not explained:\n%s", said)
		}
		return nil
	})
	s.kubectl(t, "", "annotate", "--overwrite", "pod", "loosened", "traffic.sidecar.istio.io/includeOutboundIPRanges=")
	s.guardSays(t, "loosened", "state=changed")
	s.isExplained(t, "loosened", `includeOutboundIPRanges: "*"; now ""`)
	if after := s.rules(t, "loosened"); after != before {
		t.Errorf("it held %+v and holds %+v", before, after)
	}
	s.nft(t, "loosened", "delete", "table", "inet", "capture-cni")
	s.guardSays(t, "loosened", "found=uncaptured")
	s.eventSays(t, "loosened", "CaptureRepaired", "is captured now")
	eventually(t, func() error {
		if after := s.rules(t, "loosened"); after.Backend == "" {
			return fmt.Errorf("it holds %+v", after)
		}
		return nil
	})
}

// isExplained asks on the pod's node.
func (s space) isExplained(t *testing.T, pod, want string) {
	t.Helper()
	if out := s.explain(t, pod); !strings.Contains(out, want) {
		t.Errorf("the explanation does not say %s:\n%s", want, out)
	}
}

// explain is what the first node's guard says of a pod.
func (s space) explain(t *testing.T, pod string) string {
	t.Helper()
	return agents(t, "exec", agentOn(t, c.Nodes[0]), "--container=guard", "--", "/capture-cni-node", "explain", s.name+"/"+pod)
}

func agentOn(t *testing.T, node *cluster.Node) string {
	t.Helper()
	return agents(t, "get", "pods", "--field-selector=spec.nodeName="+node.Name, "-o", "jsonpath={.items[0].metadata.name}")
}

// guardSays waits for a line of a guard's log about a pod.
func (s space) guardSays(t *testing.T, pod, what string) {
	t.Helper()
	eventually(t, func() error {
		logs, err := c.Kubectl(t.Context(), "", "--namespace", cluster.Namespace, "logs", "daemonset/capture-cni-node", "--all-pods", "--container=guard", "--tail=100")
		if err != nil {
			return err
		}
		for _, line := range strings.Split(logs, "\n") {
			if strings.Contains(line, s.name+"/"+pod) && strings.Contains(line, what) {
				return nil
			}
		}
		return fmt.Errorf("no guard says %q of %s:\n%s", what, pod, logs)
	})
}

// nft changes what a pod's namespace holds, from outside.
func (s space) nft(t *testing.T, pod string, args ...string) {
	t.Helper()
	sandbox, err := s.sandbox(t.Context(), pod)
	check(t, err)
	host, err := sandbox.Host()
	check(t, err)
	defer host.NetNS.Close()
	check(t, host.Do(func() error {
		out, err := exec.CommandContext(t.Context(), "nft", args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("nft %s: %w: %s", strings.Join(args, " "), err, out)
		}
		return nil
	}))
}

// holdConnection connects a pod with another one's echo and keeps the
// connection. It names the proxies on the way; alive fails unless it is.
func (s space) holdConnection(t *testing.T, from, to string) (proxies string, alive func()) {
	t.Helper()
	v4, _ := s.addresses(t, to)
	ctx, cancel := context.WithCancel(t.Context())
	command := exec.CommandContext(ctx, filepath.Join(c.Dir, "bin", "kubectl"), "--kubeconfig", c.Kubeconfig(), "--namespace", s.name,
		"exec", from, "--container", "app", "--", "/apps", "hold", address(v4, 7000))
	var complaint strings.Builder
	command.Stderr = &complaint
	out, err := command.StdoutPipe()
	check(t, err)
	check(t, command.Start())
	t.Cleanup(func() { cancel(); _ = command.Wait() })
	lines := bufio.NewScanner(out)
	var said strings.Builder
	for lines.Scan() && lines.Text() != "echo" {
		said.WriteString(lines.Text() + "\n")
	}
	hops, err := parseHops(said.String())
	check(t, err)
	beats := make(chan struct{}) // heard by who waits, so that each is of now
	go func() {
		defer close(beats)
		for lines.Scan() {
			select {
			case beats <- struct{}{}:
			default:
			}
		}
	}()
	return names(hops), func() {
		t.Helper()
		for range 2 { // one may have been on its way
			if _, goesOn := <-beats; !goesOn {
				t.Fatalf("the connection has ended: %v: %s", command.Wait(), complaint.String())
			}
		}
	}
}
