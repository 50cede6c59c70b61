// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/lab/sample"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// node is a directory that the plugin trusts, with the sockets of an agent.
type node struct {
	socket  string
	records *net.UnixConn
	answer  atomic.Pointer[lookup.Answer]
}

func startNode(t *testing.T) *node {
	t.Helper()
	lab.RequireRoot(t)
	dir, err := os.MkdirTemp("", "verbs") // a socket's path is short
	lab.Check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv(config.DirectoryVariable, dir)
	n := &node{socket: filepath.Join(dir, config.AgentSocketName)}
	n.records = lab.AgentSocket(t, n.socket)
	pods := config.PodsSocket(n.socket)
	lab.Check(t, os.Mkdir(filepath.Dir(pods), 0o700))
	listener, err := net.Listen("unix", pods)
	lab.Check(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte{lookup.Accepted})
			if _, err := lookup.ReadMessage(conn, lookup.MaxRequest); err == nil {
				document, _ := json.Marshal(n.answer.Load())
				_ = lookup.WriteMessage(conn, document)
			}
			_ = conn.Close()
		}
	}()
	return n
}

// args returns the arguments of a call for a pod's namespace, with more keys of the configuration.
func (n *node) args(netns, more string) *skel.CmdArgs {
	return &skel.CmdArgs{
		ContainerID: "c", Netns: netns, IfName: "eth0", Args: "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=a;K8S_POD_UID=" + apiUID,
		StdinData: fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"n","type":"capture-cni","kubeconfig":%q,"agentSocket":%q,"backend":"nftables","lookupTimeout":"1s",%s`+
			`"prevResult":{"cniVersion":"1.0.0"}}`, filepath.Dir(n.socket)+"/kubeconfig", n.socket, more),
	}
}

// record returns the one record that the agent has received.
func (n *node) record(t *testing.T) (r record.Record) {
	t.Helper()
	sent := lab.Datagrams(t, n.records)
	if len(sent) != 1 {
		t.Fatalf("%d records", len(sent))
	}
	lab.Check(t, json.Unmarshal(sent[0], &r))
	return r
}

// meshed returns the answer of a pod that a mesh has injected.
func meshed(annotations ...string) lookup.Answer {
	pod := &capture.Pod{Annotations: map[string]string{"sidecar.istio.io/status": "{}"}, Containers: []capture.Container{{Name: "app"}, {Name: "istio-proxy"}}}
	for i := 0; i < len(annotations); i += 2 {
		pod.Annotations[annotations[i]] = annotations[i+1]
	}
	return lookup.Answer{Version: capture.PodVersion, UID: apiUID, Pod: pod}
}

// TestCalls calls ADD, CHECK and DEL for pods of all kinds, in a namespace with an address of IPv4.
func TestCalls(t *testing.T) {
	const kubeletsOwn = `"kubernetes.io/config.source":"api",`
	n := startNode(t)
	injected, outside := meshed(), meshed()
	delete(outside.Pod.Annotations, "sidecar.istio.io/status")
	passes := func(annotations string) string {
		return `"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{` + annotations + `}},`
	}
	refused := lookup.Answer{Version: capture.PodVersion, Fault: &lookup.Fault{Kind: lookup.Refused, Message: "forbidden"}}
	decided, lookedUp := []record.Stage{record.Deciding}, []record.Stage{record.Deciding, record.LookingUp}
	for name, tt := range map[string]struct {
		answer     lookup.Answer
		more       string
		err, check string // of ADD and of CHECK
		verdict    record.Verdict
		reason     capture.Reason
		stages     []record.Stage
		log        string
	}{
		"captured": {
			injected, "", "", "", record.Captured, "",
			[]record.Stage{record.Deciding, record.LookingUp, record.Committing},
			"level=INFO msg=captured pod=shop/a backend=nftables ipv6=refused took=",
		},
		"outside the mesh": {outside, `"logLevel":"debug",`, "", "", record.Passed, capture.ReasonNotInjected, lookedUp, `level=DEBUG msg="not captured" pod=shop/a reason="no annotation`},
		"exempt": {
			meshed("sidecar.istio.io/inject", "false"), "", "", "", record.Passed, capture.ExemptReason("inject_false"), lookedUp,
			`level=INFO msg="in the mesh, and exempt from capture" pod=shop/a cause=inject_false reason="sidecar.istio.io/inject is false"`,
		},
		"by the runtime's annotations": {injected, `"logLevel":"debug",` + passes(`"kubernetes.io/config.source":"api"`), "", "", record.Passed, capture.ReasonNotInjected, decided, `reason="not injected"`},
		"a static pod that asks for capture": {
			injected, passes(`"kubernetes.io/config.source":"file","capture-cni.io/outbound-port":"1"`),
			"a static pod with annotations capture-cni.io/ would run uncaptured", "a static pod with annotations", record.Failed, capture.ReasonRefused, decided, "",
		},
		"an excluded namespace": {
			injected, `"excludeNamespaces":["shop"],` + passes(`"capture-cni.io/unknown":"1"`), "", "",
			record.Passed, capture.ReasonNamespaceExcluded, decided, "",
		},
		"exempt, as the runtime's annotations are of a mesh": {
			meshed("sidecar.istio.io/inject", "false"), passes(kubeletsOwn + `"sidecar.istio.io/status":"{}"`), "", "",
			record.Passed, capture.ExemptReason("inject_false"), lookedUp, "",
		},
		"a static pod":             {injected, passes(`"kubernetes.io/config.source":"file"`), "", "", record.Passed, capture.ReasonStaticPod, decided, ""},
		"a bad annotation":         {meshed(excludedPorts, "x"), "", "pod shop/a: annotation " + excludedPorts, "pod shop/a: annotation ", record.Failed, capture.ReasonAnnotations, lookedUp, ""},
		"an older agent":           {outside, passes(kubeletsOwn + `"sidecar.istio.io/status":"{}"`), "the runtime passes annotations of a mesh", "", record.Failed, capture.ReasonLookup, lookedUp, ""},
		"a lookup that is refused": {refused, "", "forbidden", "forbidden", record.Failed, capture.ReasonLookup, lookedUp, ""},
		"a bad setting":            {injected, `"mesh":[],`, `configuration key "mesh" is []`, `configuration key "mesh" is []`, record.Failed, capture.ReasonConfiguration, decided, ""},
		"an unknown setting":       {injected, `"caFile":"/tmp",`, "", "", record.Captured, "", append(lookedUp, record.Committing), `level=WARN msg="configuration key \"caFile\" is not known`},
		"credentials elsewhere":    {injected, `"kubeconfig":"/tmp/kubeconfig",`, "/tmp", "/tmp", record.Failed, capture.ReasonConfiguration, decided, ""},
	} {
		t.Run(name, func(t *testing.T) {
			host := lab.StartHost(t)
			lab.Check(t, host.AddAddresses("lo", "10.77.0.2/32"))
			n.answer.Store(&tt.answer)
			var log bytes.Buffer
			output, err := realPlugin.Add(n.args(host.Path(), tt.more), &log)
			if !says(err, tt.err) || err == nil && string(output) != "{\"cniVersion\":\"1.0.0\"}\n" || !strings.Contains(log.String(), tt.log) {
				t.Errorf("ADD: %q, error %v, want %q; log %s", output, err, tt.err, &log)
			}
			r, state, want := n.record(t), sample.Inspect(t, host), ""
			if tt.verdict == record.Captured {
				want = string(config.NFTables)
			}
			if r.Verdict != tt.verdict || r.Reason != tt.reason || !says(err, r.Message) && err != nil || (r.Code != 0) != (err != nil) || r.Sandbox != "c" || r.Pod.UID != apiUID {
				t.Errorf("record %+v", r)
			}
			if r.Backend != want || string(state.Backend) != want || state.Stamp != r.Stamp || r.Time.IsZero() {
				t.Errorf("record %+v, state %+v", r, state)
			}
			for _, stage := range tt.stages {
				if r.Stages[stage] <= 0 {
					t.Errorf("stages %v, without %s", r.Stages, stage)
				}
			}
			if err := check(n.args(host.Path(), tt.more), &log); !says(err, tt.check) {
				t.Errorf("CHECK: error %v, want %q", err, tt.check)
			}
			if len(lab.Datagrams(t, n.records)) > 0 {
				t.Error("CHECK sent a record")
			}
			log.Reset()
			del(host.Path(), slog.New(slog.NewTextHandler(&log, nil)))
			if got := sample.Inspect(t, host); got != (netfilter.State{}) || log.Len() > 0 {
				t.Errorf("after DEL: %+v; log %s", got, &log)
			}
		})
	}
}

const excludedPorts = "traffic.sidecar.istio.io/excludeOutboundPorts"

// says reports whether an error contains a text; there is none for "".
func says(err error, text string) bool {
	return (err == nil) == (text == "") && (err == nil || strings.Contains(err.Error(), text))
}

// TestCheck calls CHECK after changes of what ADD has applied, and of what CHECK can know.
func TestCheck(t *testing.T) {
	n := startNode(t)
	gone := filepath.Join(t.TempDir(), "netns")
	fault := func(message string) lookup.Answer {
		return lookup.Answer{Version: capture.PodVersion, Fault: &lookup.Fault{Kind: lookup.Failed, Message: message}}
	}
	const tolerated = `level=WARN msg="the pod has rules; CHECK could not compare them" pod=shop/a stamp=`
	for name, tt := range map[string]struct {
		change    string // of the rules
		answer    lookup.Answer
		more      string
		err, log  string
		forbidden string // not in the log
	}{
		"nothing":               {"", meshed(), "", "", "", "WARN"},
		"another backend":       {"", meshed(), `"backend":"iptables-nft",`, "", "", "WARN"},
		"a rule that is gone":   {"flush chain inet capture-cni nat_OUTPUT", meshed(), "", "the network namespace of pod shop/a differs from the desired state:\nmissing: rule", "", ""},
		"no rules":              {"delete table inet capture-cni", meshed(), "", "the network namespace of pod shop/a differs from the desired state:\nmissing: ", "", ""},
		"edited annotations":    {"flush chain inet capture-cni nat_OUTPUT", meshed(excludedPorts, "81"), "", "", "", "WARN"},
		"malformed annotations": {"", meshed(excludedPorts, "x"), "", "", tolerated, ""},
		"a runtime class":       {"", refusedPod(), "", "", tolerated, ""},
		"no lookup":             {"", fault("busy"), "", "", tolerated, ""},
		"neither":               {"delete table inet capture-cni", fault("busy"), "", "busy", "", "CHECK could not"},
		"bad stdin":             {"", meshed(), `x`, "", "", ""},
		"bad settings":          {"", meshed(), `"mesh":[],`, `configuration key "mesh"`, "", "CHECK could not"},
	} {
		t.Run(name, func(t *testing.T) {
			host, captured := lab.StartHost(t), meshed()
			lab.Check(t, host.AddAddresses("lo", "10.77.0.2/32"))
			n.answer.Store(&captured)
			_, err := realPlugin.Add(n.args(host.Path(), ""), &bytes.Buffer{})
			lab.Check(t, err)
			n.record(t)
			host.Load(t, tt.change)
			n.answer.Store(&tt.answer)
			var log bytes.Buffer
			err = check(n.args(host.Path(), tt.more), &log)
			if tt.more == "x" {
				if err == nil {
					t.Error("no error")
				}
				return
			}
			if !says(err, tt.err) || !strings.Contains(log.String(), tt.log) || tt.forbidden != "" && strings.Contains(log.String(), tt.forbidden) {
				t.Errorf("error %v, want %q; log %s", err, tt.err, &log)
			}
			if err := check(n.args(gone, tt.more), &log); err == nil {
				t.Error("no error of a namespace that is gone")
			}
		})
	}
	captured := meshed()
	n.answer.Store(&captured)
	if _, err := realPlugin.Add(n.args(gone, ""), &bytes.Buffer{}); err == nil || n.record(t).Reason != capture.ReasonGone {
		t.Errorf("ADD without a namespace: %v", err)
	}
	canary := n.args(gone, "")
	canary.ContainerID = record.Canary
	if _, err := realPlugin.Add(canary, &bytes.Buffer{}); err == nil || len(lab.Datagrams(t, n.records)) > 0 {
		t.Errorf("of a canary: a record, or error %v", err)
	}
	var log bytes.Buffer
	for _, netns := range []string{"", gone} {
		if del(netns, slog.New(slog.NewTextHandler(&log, nil))); log.Len() > 0 {
			t.Errorf("DEL of %q: %s", netns, &log)
		}
	}
	lab.Check(t, os.WriteFile(gone, nil, 0o600))
	warned, args, host := meshed("traffic.sidecar.istio.io/unknown", "1"), n.args("", ""), lab.StartHost(t)
	n.answer.Store(&warned)
	args.Netns, args.Args = host.Path(), "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=a"
	_, err := realPlugin.Add(args, &log)
	if !says(err, "pod shop/a: the pod has no usable address") || n.record(t).Reason != capture.ReasonRefused {
		t.Errorf("ADD before the pod has addresses: %v", err)
	}
	lab.Check(t, host.AddAddresses("lo", "10.77.0.2/32", "fd77::2/128"))
	if _, err := realPlugin.Add(args, &log); err != nil {
		t.Error(err)
	}
	const note = "IPv6 is left uncaptured"
	if r := n.record(t); r.Pod.UID != apiUID || len(r.Warnings) != 1 || !strings.Contains(log.String(), `level=WARN msg="`) ||
		len(r.Notes) != 1 || !strings.HasPrefix(r.Notes[0], note) || !strings.Contains(log.String(), `level=INFO msg="`+note) {
		t.Errorf("record %+v, log %s", r, &log)
	}
	edited := meshed(excludedPorts, "81")
	n.answer.Store(&edited)
	if _, err := realPlugin.Add(args, &log); !says(err, "capturing pod shop/a: ") || n.record(t).Verdict != record.Failed {
		t.Errorf("another ADD, with other rules: %v", err)
	}
	if err := status(&skel.CmdArgs{StdinData: []byte("{")}); err == nil || cniError(err).Code != types.ErrDecodingFailure {
		t.Errorf("STATUS without a configuration: %v", err)
	}
	log.Reset()
	if del(gone, slog.New(slog.NewTextHandler(&log, nil))); !strings.Contains(log.String(), "removing the rules failed; they end with the network namespace") {
		t.Errorf("DEL of no namespace: %s", &log)
	}
}

// TestNoIPv6Modules has a kernel that lacks what ip6tables needs. A pod without IPv6 starts, again by the
// same ADD, which keeps the rules of the first; other rules, and those that capture IPv6, fail.
func TestNoIPv6Modules(t *testing.T) {
	n, directory := startNode(t), t.TempDir()
	lab.RequireProgram(t, "iptables-nft")
	const lacks = "#!/bin/sh\necho \"Warning: Extension owner is not supported, missing kernel module?\" >&2\nexit 4\n"
	lab.Check(t, lab.WriteProgram(filepath.Join(directory, "ip6tables-nft-restore"), []byte(lacks)))
	t.Setenv("PATH", directory+":"+os.Getenv("PATH"))
	without, with := lab.StartHost(t), lab.StartHost(t)
	lab.Check(t, without.AddAddresses("lo", "10.77.0.2/32"))
	lab.Check(t, with.AddAddresses("lo", "10.77.0.2/32", "fd77::2/128"))
	const warning = "IPv6 connections of the pod are not refused: "
	first := ""
	for _, tt := range []struct {
		host   *lab.Host
		answer lookup.Answer
		more   string
		err    string
	}{
		{without, meshed(), "", ""},
		{without, meshed(), "", ""},
		{without, meshed(excludedPorts, "81"), "", "other rules of an earlier ADD"},
		{with, meshed(), `"ipv6":"always",`, "the kernel lacks xt_owner"},
	} {
		n.answer.Store(&tt.answer)
		args := n.args(tt.host.Path(), tt.more)
		args.StdinData = bytes.Replace(args.StdinData, []byte(`"backend":"nftables"`), []byte(`"backend":"iptables-nft"`), 1)
		var log bytes.Buffer
		_, err := realPlugin.Add(args, &log)
		r, state := n.record(t), sample.Inspect(t, tt.host)
		first = cmp.Or(first, r.Stamp)
		if !says(err, tt.err) || strings.Contains(log.String(), "not refused") != (tt.host == without) {
			t.Errorf("ADD: %v, want %q; log %s", err, tt.err, &log)
		}
		if warned := slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.HasPrefix(w, warning) }); warned != (tt.host == without) {
			t.Errorf("record %+v", r)
		}
		if tt.host == without && (state.Stamp != first || capture.StampedIPv6(first) != capture.Ignored || tt.err == "" && r.Stamp != first) ||
			tt.host == with && state != (netfilter.State{}) {
			t.Errorf("state %+v, record %+v, first stamp %s", state, r, first)
		}
	}
}

// refusedPod returns a pod whose runtime class the plugin refuses.
func refusedPod() lookup.Answer {
	answer := meshed()
	answer.Pod.RuntimeClass = "kata"
	return answer
}

// TestRun calls the verbs as a runtime does, by the environment and stdin.
func TestRun(t *testing.T) {
	n, host, captured := startNode(t), lab.StartHost(t), meshed("sidecar.istio.io/interceptionMode", "TPROXY")
	lab.Check(t, host.AddAddresses("lo", "10.77.0.2/32"))
	n.answer.Store(&captured)
	args := n.args(host.Path(), "")
	for key, value := range map[string]string{"CONTAINERID": "c", "NETNS": args.Netns, "IFNAME": "eth0", "ARGS": args.Args, "PATH": "/"} {
		t.Setenv("CNI_"+key, value)
	}
	stdin := os.Stdin
	t.Cleanup(func() { os.Stdin = stdin })
	path := filepath.Join(t.TempDir(), "stdin")
	for _, tt := range []struct {
		command, more, out string
		status             int
		state              config.Backend
	}{
		{"ADD", "", "{\"cniVersion\":\"1.0.0\"}\n", 0, config.NFTables},
		{"CHECK", "", "", 0, config.NFTables},
		{"STATUS", `"cniVersion":"1.1.0","status":"strict",`, "", 0, config.NFTables},
		{"STATUS", `"cniVersion":"1.1.0","status":"strict","mesh":[],`, `"msg": "configuration key \"mesh\" is []`, 1, config.NFTables},
		{"STATUS", `"cniVersion":"1.1.0","status":"strict","kubeconfig":"/tmp/kubeconfig",`, `"code": 7`, 1, config.NFTables},
		{"STATUS", `"cniVersion":"1.1.0","status":"strict","agentSocket":"",`, `"msg": "meshed pods can't start: asking the API server: stat ` + filepath.Dir(n.socket) + "/kubeconfig", 1, config.NFTables},
		{"STATUS", `"cniVersion":"1.1.0","agentSocket":"",`, "", 0, config.NFTables},
		{"GC", `"cniVersion":"1.1.0",`, "", 0, config.NFTables},
		{"VERSION", "", `"supportedVersions":["0.3.0"`, 0, config.NFTables},
		{"CHECK", `"mesh":[],`, `"code": 7`, 1, config.NFTables},
		{"DEL", "", "", 0, ""},
		{"CHECK", "", `"code": 999`, 1, ""},
		{"ADD", `"mesh":[],`, `"code": 7`, 1, ""},
	} {
		t.Setenv("CNI_COMMAND", tt.command)
		document := string(n.args(host.Path(), tt.more).StdinData)
		if strings.Contains(tt.more, "cniVersion") {
			document = strings.Replace(document, `"cniVersion":"1.0.0",`, "", 1)
		}
		lab.Check(t, os.WriteFile(path, []byte(document), 0o600))
		file, err := os.Open(path)
		lab.Check(t, err)
		os.Stdin = file
		var stdout, stderr bytes.Buffer
		status := Run(tt.command, &stdout, &stderr)
		_ = file.Close()
		if status != tt.status || !strings.Contains(stdout.String(), tt.out) || tt.out == "" && stdout.Len() > 0 || sample.Inspect(t, host).Backend != tt.state {
			t.Errorf("%s with %s: status %d, %s, %s", tt.command, tt.more, status, &stdout, &stderr)
		}
	}
}
