// SPDX-License-Identifier: Apache-2.0

package capturetest

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podfields"
)

// newTest returns a test on a cluster of three nodes, the first of which is removed, with
// this configuration of the plugin.
func newTest(t *testing.T, s *apiServer, netconf string) *Test {
	t.Helper()
	s.objects["namespaces/capture-cni/pods/agent-2"] = &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "guard"}, {
			Name: fleet.InstallerContainer, Image: "agent:1", Env: []corev1.EnvVar{{Name: fleet.NetConfVariable, Value: netconf}},
		}}},
	}
	f := &fleet.Fleet{Namespace: "capture-cni"}
	for i, state := range []fleet.NodeState{fleet.Removed, fleet.Ready, fleet.Ready} {
		f.Nodes = append(f.Nodes, fleet.Node{Name: fmt.Sprintf("node-%d", i+1), State: state, Agent: fmt.Sprintf("agent-%d", i+1)})
	}
	return &Test{
		Client: s.start(t), Fleet: f, Modes: []Mode{Redirect, TProxy}, Timeout: time.Minute, Poll: time.Millisecond, Progress: t.Logf,
		Explain: func(_ context.Context, namespace, pod string) (*fleet.Explanation, error) {
			return &fleet.Explanation{State: "uncaptured", Finding: report.Finding{Code: report.Uncaptured, Reason: "explained " + namespace + "/" + pod, Next: "do this"}}, nil
		},
		Archive: func(_ context.Context, nodes []string) (string, error) {
			if s.of("pods") == 0 {
				t.Error("the report is packed when the pods are gone")
			}
			for _, pod := range s.created {
				if until, err := time.Parse(time.RFC3339, pod.Annotations[untilAnnotation]); err != nil || time.Until(until) < 4*time.Minute {
					t.Errorf("another test may remove pod %s from %s on, and two reports take 4 minutes", pod.Name, until)
				}
			}
			return strings.Join(nodes, "+"), nil
		},
	}
}

// of returns how many objects of tests are there of a kind.
func (s *apiServer) of(kind string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for path := range s.objects {
		parts := strings.Split(path, "/")
		if parts[len(parts)-2] == kind && !strings.HasPrefix(path, "namespaces/capture-cni/") {
			n++
		}
	}
	return n
}

func (s *apiServer) expectEmpty(t *testing.T) {
	t.Helper()
	for _, kind := range []string{"namespaces", "pods", "services"} {
		if n := s.of(kind); n > 0 {
			t.Errorf("%d %s are left", n, kind)
		}
	}
}

// count returns the results by verdict.
func count(report *Report) map[Verdict]int {
	counts := map[Verdict]int{}
	for _, result := range report.Results {
		counts[result.Verdict()]++
	}
	return counts
}

// TestPasses runs all checks on two good nodes, and removes everything. The pods are in the
// mesh, keep to Pod Security and exempt nothing from capture but what is tested.
func TestPasses(t *testing.T) {
	t.Parallel()
	for _, namespace := range []string{"", "given"} {
		s := newAPIServer()
		test := newTest(t, s, "{}")
		test.Namespace = namespace
		var progress []string
		test.Progress = func(format string, args ...any) { progress = append(progress, fmt.Sprintf(format, args...)) }
		report, err := test.Run(t.Context())
		if err != nil || count(report)[Passed] != 32 || len(report.Results) != 32 || report.Archive != "" {
			t.Fatalf("%+v, %v", report, err)
		}
		first, last := report.Results[0], report.Results[31]
		if first.Client != "node-2" || first.Server != "node-3" || last.Client != "node-3" || last.Server != "node-2" || report.Image != "agent:1" || !slices.Equal(report.Nodes, []string{"node-2", "node-3"}) {
			t.Errorf("%+v", report)
		}
		s.expectEmpty(t)
		if !strings.HasPrefix(progress[0], "1 of 4, REDIRECT: ") || !strings.HasPrefix(progress[len(progress)-1], "4 of 4, TPROXY: ") {
			t.Errorf("progress %q", progress)
		}
		if len(s.created) != 8 {
			t.Errorf("%d pods were made", len(s.created))
		}
		for _, pod := range s.created {
			decision, err := capture.Decide(podfields.Of(pod), config.DefaultSettings())
			if err == nil {
				decision, err = decision.At([]netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}, nil)
			}
			if err != nil || decision.Exemption.Cause != "" || len(decision.Warnings) > 0 || decision.Intent.IPv6 != capture.Captured {
				t.Errorf("pod %s: %+v, %v", pod.Name, decision, err)
			}
			restricted := pod.Annotations["sidecar.istio.io/interceptionMode"] == "REDIRECT"
			for _, container := range pod.Spec.Containers {
				if c := container.SecurityContext; restricted && (*c.RunAsUser == 0 || len(c.Capabilities.Add) > 0) || *c.AllowPrivilegeEscalation || !slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) {
					t.Errorf("container %s of %s: %+v", container.Name, pod.Name, c)
				}
			}
		}
	}
}

// TestFails names the cause and the next step of each failed check, and packs one report.
func TestFails(t *testing.T) {
	t.Parallel()
	s := newAPIServer()
	s.observe = func(to netip.AddrPort, mode Mode) report.TestObservation {
		o := asCaptured(to, mode)
		if to.Addr().Is6() {
			o.Lines = slices.DeleteFunc(o.Lines, func(l report.TestLine) bool { return l.By == "client/outbound" })
		}
		return o
	}
	test := newTest(t, s, "{}")
	test.Nodes = []string{"node-2"}
	report, err := test.Run(t.Context())
	if err != nil || count(report)[Failed] != 6 || count(report)[Passed] != 10 || report.Archive != "node-2" {
		t.Fatalf("%+v, %v", report, err)
	}
	failed := report.Results[slices.IndexFunc(report.Results, func(r Result) bool { return r.Verdict() == Failed })]
	if !strings.Contains(failed.Finding.Reason, "bypassed the client's proxy") || !strings.Contains(failed.Finding.Next, "node node-2") {
		t.Errorf("%+v", failed)
	}
	if len(report.Notes) != 2 || !strings.Contains(report.Notes[0], "REDIRECT: the client's pod on node node-2 is uncaptured: explained capture-cni-test-") {
		t.Errorf("notes: %q", report.Notes)
	}
	s.expectEmpty(t)
}

// TestDoesNotStart says why a pod has not started in time.
func TestDoesNotStart(t *testing.T) {
	t.Parallel()
	s := newAPIServer()
	s.stuck = "client"
	test := newTest(t, s, "{}")
	test.Modes, test.Nodes = []Mode{Redirect}, []string{"node-2"}
	test.Progress = func(_ string, args ...any) {
		if slices.Contains(args, any("client")) { // the server has started, however busy this machine is
			test.Timeout = time.Second
		}
	}
	report, err := test.Run(t.Context())
	if err != nil || count(report)[Failed] != 1 || report.Archive == "" {
		t.Fatalf("%+v, %v", report, err)
	}
	if result := report.Results[0].Finding; !strings.Contains(result.Reason, "pod client on node node-2 did not start within 1s: explained") || result.Next != "do this" || result.Code != "uncaptured" {
		t.Errorf("%+v", result)
	}
	s.expectEmpty(t)
}

// TestRefused skips what the API server refuses, with the reason.
func TestRefused(t *testing.T) {
	t.Parallel()
	s := newAPIServer()
	s.refuses = func(method, path string, pod *corev1.Pod) string {
		if pod.Annotations["sidecar.istio.io/interceptionMode"] == "TPROXY" {
			return "violates PodSecurity"
		}
		return ""
	}
	report, err := newTest(t, s, "{}").Run(t.Context())
	if err != nil || count(report)[Passed] != 16 || count(report)[Skipped] != 2 || !strings.Contains(report.Results[8].Finding.Reason, "violates PodSecurity") {
		t.Errorf("%+v, %v", report, err)
	}
	s.expectEmpty(t)
	s = newAPIServer()
	s.refuses = func(method, path string, _ *corev1.Pod) string {
		if path == "namespaces" || method == "DELETE" {
			return "not allowed"
		}
		return ""
	}
	report, err = newTest(t, s, "{}").Run(t.Context())
	if err != nil || count(report)[Skipped] != 4 || !strings.Contains(report.Results[0].Finding.Next, "capture-cni-operator-test") || !strings.Contains(strings.Join(report.Notes, ""), "not allowed") {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestInjected skips a namespace in which an injector changes the pods.
func TestInjected(t *testing.T) {
	t.Parallel()
	s := newAPIServer()
	s.admit = func(pod *corev1.Pod) {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: "istio-init"})
	}
	report, err := newTest(t, s, "{}").Run(t.Context())
	if err != nil || count(report)[Skipped] != 4 || !strings.Contains(report.Results[0].Finding.Reason, "istio-init") {
		t.Errorf("%+v, %v", report, err)
	}
	s.expectEmpty(t)
}

// TestChanged notices each change of a pod that decides about capture.
func TestChanged(t *testing.T) {
	t.Parallel()
	r := run{Test: &Test{}, nodes: make([]fleet.Node, 2)}
	for name, change := range map[string]func(pod *corev1.Pod){
		"":                  func(*corev1.Pod) {},
		"another mark":      func(pod *corev1.Pod) { pod.Annotations[form.mark] = "{}" },
		"a container":       func(pod *corev1.Pod) { pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "c"}) },
		"an init container": func(pod *corev1.Pod) { pod.Spec.InitContainers = []corev1.Container{{Name: "i"}} },
	} {
		ours, admitted := r.server(), r.server()
		if change(admitted); (changed(ours, admitted) != "") != (name != "") {
			t.Errorf("%s: %q", name, changed(ours, admitted))
		}
	}
}

// TestServiceAccount retries until the new namespace has its service account.
func TestServiceAccount(t *testing.T) {
	t.Parallel()
	s := newAPIServer()
	tries := 0
	s.refuses = func(method, path string, _ *corev1.Pod) string {
		if strings.HasSuffix(path, "/pods") && method == "POST" {
			if tries++; tries < 4 {
				return `serviceaccount "default" not found`
			}
		}
		return ""
	}
	if report, err := newTest(t, s, "{}").Run(t.Context()); err != nil || count(report)[Passed] != 32 {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestSettings tests what the configuration captures: other ports, groups and families.
func TestSettings(t *testing.T) {
	t.Parallel()
	s := newAPIServer()
	test := newTest(t, s, `{"ipv6": "never", "mesh": {"outboundPort": 16001, "outboundOwnerGroups": [7], "excludeOutboundIPRanges": ["10.96.0.0/16"]}}`)
	test.Modes, test.Nodes = []Mode{Redirect}, []string{"node-2"}
	report, err := test.Run(t.Context())
	if err != nil || count(report)[Passed] != 3 || count(report)[Skipped] != 5 {
		t.Fatalf("%+v, %v", report, err)
	}
	pod := s.created[0].Spec
	if *pod.Containers[0].SecurityContext.RunAsGroup != 7 || !slices.Contains(pod.Containers[1].Command, "--outbound-port=16001") {
		t.Errorf("%+v", pod.Containers)
	}
	if a := addresses([]string{"None", "10.0.0.1"}); len(a) != 1 || !a["IPv4"].IsValid() {
		t.Errorf("addresses: %v", a)
	}
	if p := choosePorts(config.Mesh{ExcludeInboundPorts: []uint16{8080}, ExcludeOutboundPorts: []uint16{8082}}); p != (ports{8081, 8083, 8084}) {
		t.Errorf("ports: %+v", p)
	}
	s = newAPIServer()
	test = newTest(t, s, `{"backend": "auto"}`)
	test.Modes, test.Nodes = []Mode{Redirect}, []string{"node-2"}
	if report, err := test.Run(t.Context()); err != nil || count(report)[Failed] != 0 {
		t.Errorf("with the backend that each node chooses: %+v, %v", report, err)
	}
	set := &appsv1.DaemonSet{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"}}
	set.Spec.Template.Spec.Containers = []corev1.Container{{Name: fleet.InstallerContainer, Image: "agent:2", Env: []corev1.EnvVar{{Name: fleet.NetConfVariable, Value: `{"ipv6": "never"}`}}}}
	s = newAPIServer()
	s.objects["/apis/apps/v1/namespaces/capture-cni/daemonsets/capture-cni-node"] = set
	test = newTest(t, s, `{}`)
	test.Modes, test.Nodes = []Mode{Redirect}, []string{"node-2"}
	test.Fleet.DaemonSets = []fleet.DaemonSet{{Name: "capture-cni-node"}}
	for i := range test.Fleet.Nodes {
		test.Fleet.Nodes[i].Agent = ""
	}
	if report, err := test.Run(t.Context()); err != nil || report.Image != "agent:2" || count(report)[Skipped] == 0 {
		t.Errorf("without agents: %+v, %v", report, err)
	}
	for netconf, want := range map[string]string{`{"ipv6": "sometimes"}`: "ipv6", `{"meshes": ["linkerd"]}`: "netconf.meshes has no istio"} {
		if _, err := newTest(t, newAPIServer(), netconf).Run(t.Context()); err == nil || !strings.Contains(err.Error(), fleet.NetConfVariable) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", netconf, err)
		}
	}
}
