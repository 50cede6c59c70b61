// SPDX-License-Identifier: Apache-2.0

package capturetest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/report"
)

// without returns what connections meet if they bypass a proxy.
func without(by string) func(netip.AddrPort, Mode) report.TestObservation {
	return func(to netip.AddrPort, mode Mode) report.TestObservation {
		o := asCaptured(to, mode)
		o.Lines = slices.DeleteFunc(o.Lines, func(l report.TestLine) bool { return l.By == by })
		return o
	}
}

// obstructed is a test on a cluster, and how to interrupt it.
type obstructed struct {
	*apiServer
	*Test
	interrupt func()
}

// TestObstacles says what a test tells of a cluster on which it fails, and how it goes on.
func TestObstacles(t *testing.T) {
	t.Parallel()
	waiting := func(reason string) corev1.PodStatus {
		state := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "no such image"}}
		return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: application, State: state}}}
	}
	ended := func(code int32, message string) corev1.PodStatus {
		state := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Message: message}}
		return corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: application, State: state}}}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	up := corev1.PodStatus{
		PodIPs:            []corev1.PodIP{{IP: "10.244.0.2"}, {IP: "fd00:244::2"}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: application, State: running}, {Name: "istio-proxy", State: running}},
	}
	refuse := func(method, end, why string) func(string, string, *corev1.Pod) string {
		return func(m, path string, _ *corev1.Pod) string {
			if m == method && strings.HasSuffix(path, end) {
				return why
			}
			return ""
		}
	}
	const late, soon = 3 * time.Second, 20 * time.Second // within which a pod does not start, or does
	for name, tt := range map[string]struct {
		timeout time.Duration
		change  func(obstructed)
		want    []string // in what is told
		never   string
	}{
		"none": {soon, func(obstructed) {}, []string{
			"1 of 2, REDIRECT: creating namespace capture-cni-test-", "2 of 2, REDIRECT: removing the test's pods", "passed: 16, failed: 0",
		}, "/services/server"},
		"it starts late": {soon, func(c obstructed) { c.becomes("server", corev1.PodStatus{}, corev1.PodStatus{}, up) }, []string{
			"passed: 16, failed: 0",
		}, ""},
		"it ends": {soon, func(c obstructed) { c.becomes("server", ended(3, "no rights")) }, []string{
			"test-pod-failed problem pod server: container application ended with status 3: no rights; next: if the agents are older",
			"packing a report of node-2 and node-3",
			"archive node-2+node-3", "failed: 2",
		}, ""},
		"no image": {late, func(c obstructed) {
			c.becomes("server", waiting("ErrImagePull"))
			c.Nodes = []string{"node-2"}
		}, []string{
			"did not start within 3s: container application: ErrImagePull: no such image; next: if the node can't pull the image",
			"on node node-2\n1 of 1, REDIRECT: pod server: container application: ErrImagePull: no such image\npacking",
		}, ""},
		"no image, and then no answer": {late, func(c obstructed) {
			c.Nodes = []string{"node-2"}
			c.stuck, c.refuses = "server", refuse(http.MethodGet, "/pods/server", "500")
			c.admit = func(pod *corev1.Pod) { pod.Status = waiting("ErrImagePull") }
		}, []string{"did not start within 3s: container application: ErrImagePull"}, ""},
		"no reason": {late, func(c obstructed) {
			c.stuck, c.Nodes = "server", []string{"node-2"}
			c.Explain = func(context.Context, string, string) (*fleet.Explanation, error) {
				return nil, errors.New("no agent answers")
			}
		}, []string{
			"test-pod-failed problem pod server on node node-2 did not start within 3s: no agent answers; next: kubectl capture-cni status",
		}, ""},
		"it does not end": {late, func(c obstructed) {
			c.becomes("client", up)
			c.Nodes = []string{"node-2"}
		}, []string{
			"uncaptured problem pod client on node node-2 did not end within 3s: explained",
		}, ""},
		"pods can't be read": {soon, func(c obstructed) {
			c.refuses = refuse(http.MethodGet, "/pods/server", "not allowed")
		}, []string{"error testing REDIRECT: reading pod server: not allowed"}, ""},
		"no Services": {soon, func(c obstructed) { c.refuses = refuse(http.MethodPost, "/services", "quota") }, []string{
			"test-skipped unknown creating service server: quota",
		}, ""},
		"no NET_ADMIN": {soon, func(c obstructed) {
			c.refuses, c.Modes = refuse(http.MethodPost, "/pods", "forbidden"), []Mode{TProxy}
		}, []string{"next: if pods may not have NET_ADMIN there, use --mode redirect"}, ""},
		"another program's words": {soon, func(c obstructed) { c.becomes("client", ended(0, "usage")) }, []string{
			"test-pod-failed problem", "next: if the agents are older",
		}, ""},
		"the server's proxy": {soon, func(c obstructed) { c.observe = without("server/inbound") }, []string{
			"next: look at node node-3 in kubectl", "note REDIRECT: the server's pod on node node-3 is uncaptured: explained",
		}, ""},
		"without an explanation": {soon, func(c obstructed) {
			c.observe = without("client/outbound")
			c.Explain = func(context.Context, string, string) (*fleet.Explanation, error) {
				return nil, errors.New("no agent answers")
			}
		}, []string{"REDIRECT: the client's pod on node node-2 is unknown: no agent answers", "no agent answers [unknown]"}, ""},
		"no archive": {soon, func(c obstructed) {
			c.observe = without("client/outbound")
			c.Archive = func(context.Context, []string) (string, error) { return "", errors.New("full disk") }
		}, []string{"note no report was packed: full disk"}, ""},
		"one archive of two modes": {soon, func(c obstructed) {
			c.observe, c.Modes = without("client/outbound"), []Mode{Redirect, TProxy}
			all := ""
			c.Archive = func(context.Context, []string) (string, error) { all += "x"; return all, nil }
		}, []string{"archive x\n"}, "archive xx"},
		"interrupted by a failure": {soon, func(c obstructed) {
			c.observe = without("client/outbound")
			explain := c.Explain
			c.Explain = func(ctx context.Context, namespace, pod string) (*fleet.Explanation, error) {
				c.interrupt()
				return explain(ctx, namespace, pod)
			}
		}, []string{"error testing REDIRECT: context canceled"}, "packing"},
		"interrupted at once": {soon, func(c obstructed) {
			progress := c.Progress
			c.Progress = func(format string, args ...any) { c.interrupt(); progress(format, args...) }
		}, []string{"error testing REDIRECT: context canceled"}, "POST"},
		"leftovers that stay": {soon, func(c obstructed) {
			old := newNamespace("capture-cni-test-aaaaaa-redirect", Redirect, time.Now().Add(-time.Minute))
			old.APIVersion, old.Kind = "v1", "Namespace"
			c.objects["namespaces/"+old.Name] = old
			c.refuses = refuse(http.MethodDelete, old.Name, "not allowed")
		}, []string{
			"removing namespace capture-cni-test-aaaaaa-redirect, which an earlier test left",
			"note an earlier test left namespace capture-cni-test-aaaaaa-redirect: removing namespace capture-cni-test-aaaaaa-redirect: " +
				"not allowed; if it stays: kubectl delete namespace capture-cni-test-aaaaaa-redirect\n",
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newAPIServer()
			test := newTest(t, s, "{}")
			test.Modes, test.Timeout = []Mode{Redirect}, tt.timeout
			var told strings.Builder
			test.Progress = func(format string, args ...any) { fmt.Fprintf(&told, format+"\n", args...) }
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			tt.change(obstructed{s, test, interrupt})
			found, err := test.Run(ctx)
			for _, r := range found.Results {
				fmt.Fprintf(&told, "%s %v %s; next: %s\n", r.Finding.Code, r.Finding.Severity, r.Finding.Reason, r.Finding.Next)
			}
			fmt.Fprintf(&told, "note %s\narchive %s\npassed: %d, failed: %d\nerror %v\n%s", strings.Join(found.Notes, "\nnote "),
				found.Archive, found.Count(Passed), found.Count(Failed), err, strings.Join(s.requests, "\n"))
			for _, want := range tt.want {
				if !strings.Contains(told.String(), want) {
					t.Errorf("%q is missing:\n%s", want, &told)
				}
			}
			if tt.never != "" && strings.Contains(told.String(), tt.never) {
				t.Errorf("%q is there:\n%s", tt.never, &told)
			}
		})
	}
}
