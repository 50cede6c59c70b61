// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestDel expects DEL to succeed without output for any input.
func TestDel(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	good := node{kubeconfig: "/nonexistent"}.conf("")
	for name, c := range map[string]call{
		"namespace gone":    {netns: "/var/run/netns/there-is-none", stdin: good},
		"no namespace":      {stdin: good},
		"not a namespace":   {netns: "/etc/hostname", stdin: good},
		"minimal":           {stdin: "{}"},
		"no stdin":          {},
		"garbage":           {stdin: "\x00{"},
		"unknown version":   {stdin: `{"cniVersion":"9.9.9","name":"x","type":"capture-cni"}`},
		"no CNI_ARGS":       {stdin: good, args: noArgs},
		"two pod names":     {stdin: good, args: "K8S_POD_NAME=a;K8S_POD_NAME=b"},
		"no container":      {stdin: good, env: []string{"CNI_CONTAINERID=", "CNI_IFNAME=", "CNI_PATH="}},
		"bad configuration": {stdin: node{}.conf(`"mesh": 5,`)},
		"the host's own":    {netns: "/proc/self/ns/net", stdin: good},
		"init's namespace":  {netns: "/proc/1/ns/net", stdin: good},
	} {
		t.Run(name, func(t *testing.T) {
			c.command = "DEL"
			c.run(t).silent(t)
		})
	}
}

// TestDelRemovesOurs runs DEL twice: it removes only our rules.
func TestDelRemovesOurs(t *testing.T) {
	t.Parallel()
	n, host := newNode(t), sandbox(t)
	others := "table inet others {\n}\n"
	host.Load(t, others)
	before := ruleset(t, host)
	call{netns: host.Path(), stdin: n.conf("")}.run(t).succeeds(t)
	lab.Check(t, n.Close())
	for range 2 {
		call{command: "DEL", netns: host.Path(), stdin: "{}"}.run(t).silent(t)
		if after := ruleset(t, host); after != before {
			t.Errorf("after DEL:\n%s", after)
		}
	}
}

// TestCheckNamesTheDifference samples differences; podnet's tests cover all.
func TestCheckNamesTheDifference(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for change, want := range map[string]string{
		"": "",
		"flush chain inet capture-cni nat_ISTIO_INBOUND":           `missing: rule "excluded inbound port" of chain nat_ISTIO_INBOUND`,
		"add rule inet capture-cni nat_OUTPUT drop":                "unexpected:",
		"add element inet capture-cni exclude_inbound_ports { 1 }": "of set exclude_inbound_ports",
		"delete table inet capture-cni":                            "missing: table capture-cni",
	} {
		host := sandbox(t)
		c := call{netns: host.Path(), stdin: n.conf("")}
		c.run(t).succeeds(t)
		host.Load(t, change)
		c.command = "CHECK"
		if o := c.run(t); want == "" {
			o.silent(t)
		} else {
			o.fails(t, 999, "the network namespace of pod shop/web differs from the desired state", want)
		}
	}
}

// TestRepeatedADD runs ADD ten times for the same rules, and once for other rules, which
// is refused until DEL.
func TestRepeatedADD(t *testing.T) {
	t.Parallel()
	n, host := newNode(t), sandbox(t)
	c := call{netns: host.Path(), stdin: n.conf("")}
	c.run(t).succeeds(t)
	once := ruleset(t, host)
	for range 9 {
		c.run(t).succeeds(t)
	}
	n.Put(meshed(func(p *corev1.Pod) { p.Annotations["traffic.sidecar.istio.io/includeInboundPorts"] = "" }))
	c.run(t).fails(t, 101, "delete the pod to get a new sandbox")
	if again := ruleset(t, host); again != once {
		t.Errorf("once:\n%s\nagain:\n%s", once, again)
	}
	call{command: "DEL", netns: host.Path()}.run(t).silent(t)
	c.run(t).succeeds(t)
	if other := ruleset(t, host); other == once || !strings.Contains(other, "redirect to :15001") {
		t.Errorf("after DEL and ADD:\n%s", other)
	}
}

// TestKilled kills ADDs at random moments: all rules or none are left, and the next
// ADD succeeds.
func TestKilled(t *testing.T) {
	t.Parallel()
	n, host := newNode(t), sandbox(t)
	c := call{netns: host.Path(), stdin: n.conf("")}
	c.run(t).succeeds(t)
	whole := ruleset(t, host)
	for range 30 {
		call{command: "DEL", netns: host.Path()}.run(t).silent(t)
		command := c.prepare()
		lab.Check(t, command.Start())
		time.Sleep(rand.N(12 * time.Millisecond)) // the random moment of this test: an ADD takes about as long
		_ = command.Process.Kill()                // it may have ended
		_ = command.Wait()
		if left := ruleset(t, host); left != "" && left != whole {
			t.Fatalf("some of the rules were left:\n%s", left)
		}
		c.run(t).succeeds(t)
	}
}

// TestParallel runs 32 ADDs at once, in as many namespaces and in a single one.
func TestParallel(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	shared := sandbox(t)
	var hosts []*lab.Host
	var wait sync.WaitGroup
	results := make(chan outcome, 64)
	for range 32 {
		host := sandbox(t)
		hosts = append(hosts, host)
		for _, netns := range []string{host.Path(), shared.Path()} {
			wait.Go(func() { results <- call{netns: netns, stdin: n.conf("")}.run(t) })
		}
	}
	wait.Wait()
	close(results)
	for o := range results {
		o.succeeds(t)
	}
	want := ruleset(t, shared)
	for _, host := range hosts {
		if got := ruleset(t, host); got != want || !strings.Contains(got, "redirect to :15001") {
			t.Errorf("rules differ:\n%s", got)
		}
	}
}

// TestUnmeshedWithFaultyAPI has an API server with faults: a pod outside the mesh
// starts without a request to it.
func TestUnmeshedWithFaultyAPI(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"500":       func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(500); return true },
		"401":       func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(401); return true },
		"no answer": func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, host := newNode(t), sandbox(t)
			n.Misbehave(fault)
			annotations := `"runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"kubernetes.io/config.source": "api"}},`
			call{netns: host.Path(), stdin: n.conf(annotations)}.run(t).succeeds(t)
			if n.Requests() != 0 {
				t.Errorf("%d API requests", n.Requests())
			}
			call{netns: host.Path(), stdin: n.shortTimeout("")}.run(t).fails(t, 11, "looking up pod shop/web")
			if rules := ruleset(t, host); rules != "" {
				t.Errorf("rules were left:\n%s", rules)
			}
		})
	}
}
