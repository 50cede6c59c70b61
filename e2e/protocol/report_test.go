// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/install/telemetry"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// listen returns a socket as the agent creates it, with the spool next to it.
func listen(t *testing.T) (*net.UnixConn, string) {
	t.Helper()
	lab.RequireRoot(t)
	socket := newSpool(t)
	return lab.AgentSocket(t, socket), socket
}

// newSpool returns the path of a socket that does not exist, with the spool next to it.
func newSpool(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	allow(t, directory)
	socket := filepath.Join(directory, config.AgentSocketName)
	lab.Check(t, os.Mkdir(record.Spool(socket), 0o700))
	return socket
}

func reportTo(socket string) string { return fmt.Sprintf(`"agentSocket": %q,`, socket) }

// receive waits for one record.
func receive(t *testing.T, conn *net.UnixConn) record.Record {
	t.Helper()
	lab.Check(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	buffer := make([]byte, record.MaxSize+1)
	n, err := conn.Read(buffer)
	lab.Check(t, err)
	r, err := telemetry.ParseRecord(buffer[:n])
	lab.Check(t, err)
	return r
}

// spooled empties the spool.
func spooled(t *testing.T, socket string) (records []record.Record) {
	t.Helper()
	lab.Check(t, telemetry.ReplaySpool(record.Spool(socket), func(document []byte) {
		r, err := telemetry.ParseRecord(document)
		lab.Check(t, err)
		records = append(records, r)
	}))
	return records
}

// TestRecords expects the record of each ADD at the agent's socket.
func TestRecords(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	conn, socket := listen(t)
	n.Put(meshed(func(p *corev1.Pod) {
		p.Name = "bad"
		p.Annotations["traffic.sidecar.istio.io/includeInboundPorts"] = "http"
	}))
	n.Put(meshed(func(p *corev1.Pod) {
		p.Name = "early"
		p.Annotations["traffic.sidecar.istio.io/excludeInboundPort"] = "80"
		p.Spec.InitContainers = []corev1.Container{{Name: "fetch"}}
	}))
	n.Put(meshed(func(p *corev1.Pod) { p.Name, p.Annotations["sidecar.istio.io/interceptionMode"] = "none", "NONE" }))
	n.Put(meshed(func(p *corev1.Pod) {
		p.Name = "init"
		p.Spec.InitContainers = []corev1.Container{{Name: "istio-init", SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}}}}}
	}))
	n.Put(meshed(func(p *corev1.Pod) { p.Name, p.Spec.RuntimeClassName = "classy", new("wasmtime") }))
	for _, test := range []struct {
		pod, extra, netns string
		want              record.Record
		message           string
		warnings          []string
	}{
		{pod: "web", want: record.Record{Verdict: record.Captured, Backend: "nftables"}},
		{pod: "early", want: record.Record{Verdict: record.Captured, Backend: "nftables"}, warnings: []string{
			"init container fetch starts before istio-proxy", "annotation traffic.sidecar.istio.io/excludeInboundPort is not known",
		}},
		{pod: "classy", want: record.Record{Verdict: record.Captured, Backend: "nftables"}, warnings: []string{`runtime class "wasmtime" is not known`}},
		{pod: "batch", want: record.Record{Verdict: record.Passed, Reason: capture.ReasonNotInjected}, message: "not injected"},
		{pod: "none", want: record.Record{Verdict: record.Passed, Reason: capture.ExemptReason(capture.InterceptionNone)}, message: "is NONE"},
		{pod: "init", want: record.Record{Verdict: record.Passed, Reason: capture.ExemptReason(capture.InitContainer)}, message: "istio-init"},
		{pod: "web", extra: `"excludeNamespaces": ["shop"],`, want: record.Record{Verdict: record.Passed, Reason: capture.ReasonNamespaceExcluded}},
		{
			pod: "web", extra: `"excludeNamespaces": ["shop"], "runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"kubernetes.io/config.source": "api", "sidecar.istio.io/status": ""}},`,
			want:     record.Record{Verdict: record.Passed, Reason: capture.ExemptReason(capture.NamespaceExcluded)},
			warnings: []string{"runs uncaptured"},
		},
		{pod: "bad", want: record.Record{Verdict: record.Failed, Reason: capture.ReasonAnnotations, Code: 100}, message: "includeInboundPorts"},
		{pod: "gone", want: record.Record{Verdict: record.Failed, Reason: capture.ReasonLookup, Code: 11}, message: "not found"},
		{pod: "web", extra: `"mesh": 5,`, want: record.Record{Verdict: record.Failed, Reason: capture.ReasonConfiguration, Code: 7}, message: `"mesh"`},
		{pod: "web", netns: "/run/netns/there-is-none", want: record.Record{Verdict: record.Failed, Reason: capture.ReasonGone, Code: 3}},
		{pod: "web;K8S_POD_NAME=x", want: record.Record{Verdict: record.Failed, Reason: capture.ReasonInput, Code: 4}, message: "CNI_ARGS"},
	} {
		netns := test.netns
		if netns == "" {
			netns = sandbox(t).Path()
		}
		conf := n.conf
		if test.pod == "gone" {
			conf = n.shortTimeout
		}
		before := time.Now()
		call{netns: netns, args: "K8S_POD_NAMESPACE=shop;K8S_POD_UID=" + uid + ";K8S_POD_NAME=" + test.pod, stdin: conf(test.extra + reportTo(socket))}.run(t)
		got := receive(t, conn)
		if got.Verdict != test.want.Verdict || got.Reason != test.want.Reason || got.Backend != test.want.Backend || got.Code != test.want.Code ||
			!strings.Contains(got.Message, test.message) || len(got.Warnings) != len(test.warnings) {
			t.Errorf("%s %s: got %+v", test.pod, test.extra, got)
		}
		for i, want := range test.warnings {
			if !strings.Contains(got.Warnings[min(i, len(got.Warnings)-1)], want) {
				t.Errorf("%s: warnings %q, want %q", test.pod, got.Warnings, want)
			}
		}
		if want := (capture.PodRef{Namespace: "shop", Name: test.pod, UID: uid}); !strings.Contains(test.pod, ";") && got.Pod != want {
			t.Errorf("of pod %v, want %v", got.Pod, want)
		}
		if got.Sandbox != "sandbox" || got.Time.Before(before) || got.Time.After(time.Now()) {
			t.Errorf("%s: sandbox %q at %s", test.pod, got.Sandbox, got.Time)
		}
		if _, applied := got.Stages[record.Committing]; applied != (got.Verdict == record.Captured) {
			t.Errorf("%s: stages %v", test.pod, got.Stages)
		}
		if applied := got.Verdict == record.Captured; capture.IsStamp(got.Stamp) != applied {
			t.Errorf("%s: stamp %q", test.pod, got.Stamp)
		}
	}
	if left := spooled(t, socket); len(left) > 0 {
		t.Errorf("spooled, though the agent received them: %v", left)
	}
}

// TestRecordHasUID expects the UID in the record if the runtime does not pass it.
func TestRecordHasUID(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	conn, socket := listen(t)
	call{netns: sandbox(t).Path(), args: "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web", stdin: n.conf(reportTo(socket))}.run(t).succeeds(t)
	if got := receive(t, conn); got.Pod.UID != uid || len(got.Stages) != len(report.Stages()) {
		t.Errorf("got %+v", got)
	}
}

// TestTrace expects the trace of libcni's caller in the record and on stderr, and none of a malformed
// value, which changes nothing else.
func TestTrace(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	conn, socket := listen(t)
	id := trace.TraceID{1, 2, 15: 255}
	parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: trace.SpanID{7: 1}})
	for _, env := range []string{"", "TRACEPARENT=00-" + strings.Repeat("x", 1<<10)} {
		plugin, ctx, want := call{netns: sandbox(t).Path(), stdin: n.conf(reportTo(socket)), env: []string{env}}.prepare(), t.Context(), ""
		if env == "" {
			ctx, want = trace.ContextWithSpanContext(ctx, parent), id.String()
		}
		stdin, err := io.ReadAll(plugin.Stdin)
		lab.Check(t, err)
		var stderr strings.Builder
		_, err = (&invoke.RawExec{Stderr: &stderr}).ExecPlugin(ctx, plugin.Path, stdin, plugin.Env)
		lab.Check(t, err)
		if got := receive(t, conn); got.Trace != want || got.Verdict != record.Captured || strings.Contains(stderr.String(), " trace="+id.String()) != (want != "") {
			t.Errorf("%q: got %+v, %s", env, got, stderr.String())
		}
	}
}

// TestNoAgent runs ADDs with no agent, or another file, at the socket's path: the
// results are the same, and the records of failures are spooled.
func TestNoAgent(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for name, prepare := range map[string]func(t *testing.T) string{
		"no agent": newSpool,
		"no directory": func(t *testing.T) string {
			directory := filepath.Join(t.TempDir(), "none")
			allow(t, directory)
			return filepath.Join(directory, config.AgentSocketName)
		},
		"a directory": func(t *testing.T) string {
			socket := newSpool(t)
			lab.Check(t, os.Mkdir(socket, 0o700))
			return socket
		},
		"an agent that ended": func(t *testing.T) string {
			conn, socket := listen(t)
			lab.Check(t, conn.Close())
			return socket
		},
		"an agent that does not read": func(t *testing.T) string {
			_, socket := listen(t)
			for record.Send(socket, record.Record{Verdict: record.Captured}) {
			}
			return socket
		},
	} {
		t.Run(name, func(t *testing.T) {
			socket := prepare(t)
			host := sandbox(t)
			stdin := n.conf(reportTo(socket))
			call{netns: host.Path(), stdin: stdin}.run(t).succeeds(t)
			expectCaptured(t, host, true)
			call{netns: host.Path(), args: "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=batch", stdin: stdin}.run(t).succeeds(t)
			call{netns: host.Path(), args: "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=gone", stdin: n.shortTimeout(reportTo(socket))}.run(t).fails(t, 11, "not found")
			if name == "no directory" {
				if _, err := os.Stat(filepath.Dir(socket)); err == nil {
					t.Error("the plugin created the configured directory")
				}
				return
			}
			reasons := []capture.Reason{}
			for _, r := range spooled(t, socket) {
				reasons = append(reasons, r.Reason)
			}
			if !slices.Equal(reasons, []capture.Reason{capture.ReasonLookup}) {
				t.Errorf("spooled %q", reasons)
			}
		})
	}
}

// TestManyRecords has 64 ADDs fail at once with no agent: each returns its error, and
// all records are spooled.
func TestManyRecords(t *testing.T) {
	t.Parallel()
	n := serve(t)
	n.Misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		kubeapi.WriteStatus(w, r, http.StatusForbidden, metav1.StatusReasonForbidden, "no")
		return true
	})
	socket := newSpool(t)
	host := sandbox(t)
	results := make(chan outcome)
	const adds = 64
	for range adds {
		go func() { results <- call{netns: host.Path(), stdin: n.conf(reportTo(socket))}.run(t) }()
	}
	for range adds {
		o := <-results
		o.fails(t, 11, "get pods")
	}
	if got := len(spooled(t, socket)); got != adds {
		t.Errorf("%d spooled, want %d", got, adds)
	}
}

// BenchmarkReports measures an unmeshed ADD with and without an agent.
func BenchmarkReports(b *testing.B) {
	socket := func() string {
		directory := b.TempDir()
		allow(b, directory)
		return filepath.Join(directory, config.AgentSocketName)
	}
	read, full := socket(), socket()
	conn := lab.AgentSocket(b, read)
	lab.AgentSocket(b, full) // no agent reads there
	go func() {
		buffer := make([]byte, record.MaxSize)
		for err := error(nil); err == nil; {
			_, err = conn.Read(buffer)
		}
	}()
	const annotated = `"runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"kubernetes.io/config.source": "api"}},`
	for _, to := range []struct{ name, socket string }{{"off", ""}, {"absent", socket()}, {"read", read}, {"full", full}} {
		b.Run(to.name, func(b *testing.B) {
			for b.Loop() {
				command := call{netns: "/run/netns/none", stdin: node{}.conf(annotated + reportTo(to.socket))}.prepare()
				if out, err := command.CombinedOutput(); err != nil {
					b.Fatalf("%v: %s", err, out)
				}
			}
		})
	}
}
