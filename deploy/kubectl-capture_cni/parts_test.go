// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/deploy/precheck"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestCommands expects a help text and the flags of each command, and an error for a wrong number of
// arguments.
func TestCommands(t *testing.T) {
	t.Parallel()
	whole := root(&bytes.Buffer{})
	if whole.Version != config.OwnVersion() || whole.Short == "" || whole.Long == "" || whole.Use != "kubectl-capture_cni" {
		t.Errorf("%q, version %s", whole.Use, whole.Version)
	}
	flags := map[string]string{
		"list": "all-namespaces exempt istio-init outdated uncaptured", "status": "timeout wait", "report": "file nodes",
		"test": "image mode nodes report timeout", "trace": "from in interface mark ping sender to udp", "explain": "", "traffic": "", "precheck": "", "version": "", "check": "netconf",
	}
	for _, command := range whole.Commands() {
		name, named := command.Name(), slices.Contains([]string{"check", "explain", "trace"}, command.Name())
		want, known := flags[name]
		if !known {
			t.Errorf("a command %s", name)
		}
		if command.Short == "" || command.Long == "" && name != "version" || command.Example == "" && slices.Contains([]string{"check", "test", "trace"}, name) {
			t.Errorf("%s has no help", name)
		}
		if none, one := command.Args(command, nil), command.Args(command, []string{"a"}); (none != nil) != named || (one == nil) != (named || name == "traffic") {
			t.Errorf("%s: without arguments %v, with one %v", name, none, one)
		}
		var found []string
		for _, flag := range strings.Fields(want) {
			if command.Flags().Lookup(flag) != nil {
				found = append(found, flag)
			}
		}
		if got := strings.Join(found, " "); got != want {
			t.Errorf("%s has the flags %s, want %s", name, got, want)
		}
		command.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
			if whole.PersistentFlags().Lookup(flag.Name) != nil {
				t.Errorf("%s --%s hides the flag of all commands", name, flag.Name)
			}
		})
	}
	modes, _, err := whole.Find([]string{"test"})
	lab.Check(t, err)
	if got := modes.Flags().Lookup("mode").DefValue; got != "[redirect,tproxy]" {
		t.Errorf("the modes are %s", got)
	}
}

// TestKinds expects kubectl's names for the kinds of pods' owners.
func TestKinds(t *testing.T) {
	t.Parallel()
	for kind, names := range map[string]string{
		"Pod": "po pod pods", "Deployment": "deploy deployment deployments deployment.apps", "ReplicaSet": "rs replicaset replicasets replicaset.apps",
		"StatefulSet": "sts statefulset statefulsets statefulset.apps", "DaemonSet": "ds daemonset daemonsets daemonset.apps", "Job": "job jobs job.batch",
	} {
		for _, name := range strings.Fields(names) {
			if kinds[name] != kind {
				t.Errorf("%s is %q", name, kinds[name])
			}
		}
	}
}

// TestColours expects green for good states, yellow for states that may be harmless, and red for states
// that need attention.
func TestColours(t *testing.T) {
	t.Parallel()
	for colour, words := range map[string][]string{
		"\x1b[32m": {string(fleet.Ready), string(fleet.Removed), string(report.Captured), "ok", "passed"},
		"\x1b[33m": {
			string(fleet.Waiting), string(fleet.Unreported), string(report.Unknown), string(report.Outdated), string(report.Changed),
			string(report.Foreign), string(report.InjectedLater), string(report.Exempt), "note", "skipped",
		},
		"\x1b[31m": {
			string(fleet.Faulty), string(fleet.Stale), string(fleet.NoAgent), "problem", "failed",
			string(report.Uncaptured), string(report.Drifted), string(report.NotStarted),
		},
		"": {"", "node-1", "capture"},
	} {
		for _, word := range words {
			want := word
			if colour != "" {
				want = colour + word + "\x1b[0m"
			}
			var out, plain bytes.Buffer
			writeState(&screen{&out, true}, word)
			writeState(&screen{&plain, false}, word)
			if out.String() != want || plain.String() != word {
				t.Errorf("%s: %q and %q", word, out.String(), plain.String())
			}
		}
	}
}

// TestScreen expects colours on a terminal, unless NO_COLOR is set.
func TestScreen(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	lab.Check(t, err)
	defer terminal.Close()
	file, err := os.Create(t.TempDir() + "/file")
	lab.Check(t, err)
	defer file.Close()
	for _, no := range []string{"", "1"} {
		t.Setenv("NO_COLOR", no)
		if newScreen(terminal).colours != (no == "") || newScreen(file).colours || newScreen(&bytes.Buffer{}).colours {
			t.Errorf("with NO_COLOR=%q: %v", no, newScreen(terminal).colours)
		}
	}
	for text, want := range map[string][2]string{
		"a\nä": {"a\nä", "a\nä"}, "\x1b": {`\u001b`, `\u001b`}, "\uffff": {`\uffff`, `\uffff`}, "\U00010000": {"\U00010000", "\U00010000"},
		"\U000e0001": {`\udb40\udc01`, `\U000e0001`},
	} {
		if json, yaml := string(escape([]byte(text), "json")), string(escape([]byte(text), "yaml")); json != want[0] || yaml != want[1] {
			t.Errorf("%q: %s and %s", text, json, yaml)
		}
	}
}

// TestSteps expects aligned columns, and each next step once, with all subjects that need it.
func TestSteps(t *testing.T) {
	t.Parallel()
	results := table{header: []string{"A", "B", "C"}}
	var out bytes.Buffer
	if results.write(&out); out.Len() > 0 {
		t.Errorf("a table without rows: %q", &out)
	}
	if results.writeBelow(&out); out.Len() > 0 {
		t.Errorf("a table without rows: %q", &out)
	}
	results.add("x", "long", "c\x1b")
	results.add("yy", "", "")
	results.add("", "", "")
	for _, step := range []string{"x/do this", "y/do this", "x/", "x/b", "x/b", "x/c", "x/d", "x/e", "x/f"} {
		subject, text, _ := strings.Cut(step, "/")
		results.next(subject, text)
	}
	results.writeBelow(&out)
	const want = "\nA   B     C\nx   long  c?\nyy\n\n  next for x and 1 more: do this\n  next for x: b\n  next for x: c\n  next for x: d\n  next for x: e\n" +
		"  and 1 more next steps: -o json has them all\n"
	if out.String() != want {
		t.Errorf("%s, want %s", &out, want)
	}
	out.Reset()
	results.steps = results.steps[:5]
	if results.write(&out); strings.Contains(out.String(), "more next steps") {
		t.Errorf("of five steps: %s", &out)
	}
}

// TestForms expects a result in the format of --output.
func TestForms(t *testing.T) {
	t.Parallel()
	text := func(out io.Writer, n map[string]int) { fmt.Fprintln(out, "text", n["a"]) }
	for form, want := range map[string]string{"": "text 1\n", "wide": "text 1\n", "json": "{\n  \"a\": 1\n}\n", "yaml": "a: 1\n"} {
		var out bytes.Buffer
		if err := write(&options{output: form}, &out, map[string]int{"a": 1}, notGood, text); err != notGood || out.String() != want {
			t.Errorf("%s: %q, %v", form, &out, err)
		}
	}
	if err := write(&options{output: "json"}, broken{}, map[string]int{}, notGood, text); !errors.Is(err, os.ErrClosed) {
		t.Errorf("a closed output: %v", err)
	}
	if err := write(&options{output: "json"}, &bytes.Buffer{}, func() {}, notGood, nil); err == nil || !strings.HasPrefix(err.Error(), "writing the output: ") {
		t.Errorf("what has no form: %v", err)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, os.ErrClosed }

// TestSummary expects the numbers of nodes and agents, with the names of DaemonSets if there are
// several.
func TestSummary(t *testing.T) {
	t.Parallel()
	one := fleet.DaemonSet{Name: "a", Observed: true, Desired: 1, Updated: 1, Ready: 1}
	for want, sets := range map[string][]fleet.DaemonSet{
		"none": nil, "1 desired, 1 updated, 1 ready": {one}, "a: 1 desired, 1 updated, 1 ready; a: 1 desired, 1 updated, 1 ready": {one, one},
	} {
		if got := agents(&fleet.Fleet{DaemonSets: sets}); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := counts(map[string]int{"a": 0, "b": 1, "c": 2}); got != "2 c, 1 b" {
		t.Errorf("counted %s", got)
	}
	if never, ago := age(time.Time{}), age(time.Now().Add(-time.Minute)); never != "never" || ago != "1m0s ago" {
		t.Errorf("%s and %s", never, ago)
	}
	f := &fleet.Fleet{States: map[report.Code]int{report.Captured: 1}}
	var without, with bytes.Buffer
	(&options{}).writeStatus(&without, f)
	f.Exempt, f.Updates = map[capture.ExemptionCause]int{capture.NoProxy: 2}, map[string]int{"rules": 3, "annotations": 4}
	(&options{}).writeStatus(&with, f)
	if strings.Contains(without.String(), "updates") || !strings.Contains(with.String(), "updates   4 annotations, 3 rules") {
		t.Errorf("%s and %s", &without, &with)
	}
	if strings.Contains(without.String(), "exempt") || !strings.Contains(with.String(), "exempt    2 "+string(capture.NoProxy)) {
		t.Errorf("%s and %s", &without, &with)
	}
}

// TestCauses expects a long cause to be replaced in other texts, and varying parts of causes to be
// replaced by *.
func TestCauses(t *testing.T) {
	t.Parallel()
	for cause, want := range map[string]string{
		strings.Repeat("x", 19): strings.Repeat("x", 19) + "!", strings.Repeat("x", 20): "(the cause above)!",
		"its ADD fails: " + strings.Repeat("x", 20): "(the cause above)!",
	} {
		_, said, found := strings.Cut(cause, ": ")
		if !found {
			said = cause
		}
		if got := withoutCause(cause).Replace(said + "!"); got != want {
			t.Errorf("%s: %s", cause, got)
		}
	}
	if got := causeClass("pod UID 6c1f8c3e-0b7a-4f0e-9d53-2f1f5a1d9f01 \xff"); got != "pod UID * �" && got != "pod UID * ?" {
		t.Errorf("%q", got)
	}
	if a, b := findingOfNode(fleet.Node{State: fleet.Stale}), findingOfNode(fleet.Node{State: fleet.Faulty}); a == b {
		t.Error("two states are alike")
	}
	var out bytes.Buffer
	writeEvidence(&out, fleet.Evidence{}, "")
	writePrecheck(&out, &precheck.Report{Guide: "deploy/guides/a.md"})
	if got := out.String(); !strings.Contains(got, report.WithURLs("Follow deploy/guides/a.md.")) || strings.Contains(got, "Evidence") {
		t.Error(got)
	}
}

// TestAccess expects errors about the access to the cluster, and about the namespace of the agents.
func TestAccess(t *testing.T) {
	t.Parallel()
	for flag, want := range map[string]string{
		"--kubeconfig=/missing": "kubectl capture-cni: reading the kubeconfig: stat /missing: no such file",
		"--agent-namespace=":    "kubectl capture-cni: --agent-namespace is empty: expected the namespace of the agents",
	} {
		var out, failed bytes.Buffer
		status := execute(t.Context(), []string{"version", flag}, &screen{out: &out}, &screen{out: &failed})
		if status != 2 || !strings.HasPrefix(failed.String(), want) {
			t.Errorf("%s: status %d, %s, want %s", flag, status, &failed, want)
		}
	}
}

// TestListOfAll expects pods of all namespaces, whatever the context's namespace is.
func TestListOfAll(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.addNode("node-1", time.Minute, state(nil))
	c.addPod("node-1", "web", func(pod *corev1.Pod) { pod.Annotations["sidecar.istio.io/inject"] = "false" })
	for args, listed := range map[string]bool{"list": true, "list -n shop": true, "list -n other": false, "list -n other -A": true} {
		if out, _, _ := c.run(t, strings.Fields(args)...); strings.Contains(out, "web") != listed {
			t.Errorf("%s: %s", args, out)
		}
	}
}
