// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/capture-cni/capture-cni/deploy/capturetest"
	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/deploy/precheck"
	"github.com/capture-cni/capture-cni/install/report"
)

// hostile is a text that clears a terminal by C0 and C1 control characters, changes the writing
// direction, and then looks like a line of the program.
const hostile = "x\x1b[2J\u009b2J\x9b\x7f\u202e\u2066\ufeff\U000e0001\r\nFORGED captured"

// fill sets every string in a value to hostile, also the keys of maps.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(hostile)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i))
			}
		}
	case reflect.Int:
		v.SetInt(1)
	}
}

// expectSafe fails the test if the output controls a terminal, or has a line that the program did not
// write.
func expectSafe(t *testing.T, what, output string) {
	t.Helper()
	for _, r := range output {
		if !unicode.IsPrint(r) && r != '\n' {
			t.Errorf("%s: %U in %q", what, r, output)
			break
		}
	}
	if strings.HasPrefix(output, "FORGED") || strings.Contains(output, "\nFORGED") {
		t.Errorf("%s: a forged line in\n%s", what, output)
	}
}

// TestHostileFields writes each result with hostile text in all its fields, in each format.
func TestHostileFields(t *testing.T) {
	t.Parallel()
	var state fleet.Fleet
	var list podList
	var explanation fleet.Explanation
	var check precheck.Report
	var test capturetest.Report
	for name, c := range map[string]struct {
		value any
		write func(*options, io.Writer) error
	}{
		"status":   {&state, func(o *options, out io.Writer) error { return write(o, out, &state, nil, o.writeStatus) }},
		"list":     {&list, func(o *options, out io.Writer) error { return write(o, out, list, nil, o.writeList) }},
		"explain":  {&explanation, func(o *options, out io.Writer) error { return write(o, out, &explanation, nil, writeExplanation) }},
		"precheck": {&check, func(o *options, out io.Writer) error { return write(o, out, &check, nil, writePrecheck) }},
		"test":     {&test, func(o *options, out io.Writer) error { return write(o, out, &test, nil, writeTest) }},
	} {
		fill(reflect.ValueOf(c.value).Elem())
		for _, form := range []string{"", "wide", "json", "yaml"} {
			var out strings.Builder
			if err := c.write(&options{output: form}, newScreen(&out)); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), "FORGED captured") {
				t.Errorf("%s -o %q shows nothing of the cluster:\n%s", name, form, out.String())
			}
			expectSafe(t, name+" -o "+form, out.String())
		}
	}
	var out strings.Builder
	writeJUnit(newScreen(&out), &test)
	expectSafe(t, "test -o junit", out.String())
	out.Reset()
	if err := write(&options{output: "json"}, newScreen(&out), &state, nil, (&options{}).writeStatus); err != nil {
		t.Fatal(err)
	}
	var read fleet.Fleet
	if err := json.Unmarshal([]byte(out.String()), &read); err != nil || read.Nodes[0].Name != strings.ToValidUTF8(hostile, "\ufffd") {
		t.Errorf("JSON changes a name: %q, %v", read.Nodes[0].Name, err)
	}
}

// TestHostileCluster executes commands on a cluster whose objects, errors and warnings contain hostile
// text.
func TestHostileCluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	bad := state(&report.Pods{})
	bad.Version, bad.Findings = hostile, report.Findings{{Code: report.Code(hostile), Severity: report.Problem, Subject: hostile, Reason: hostile}}
	c.addNode("node-1", time.Minute, bad)
	c.addPod("node-1", "web", func(pod *corev1.Pod) { pod.Annotations["sidecar.istio.io/interceptionMode"] = hostile })
	c.addPod("node-2", hostile, func(pod *corev1.Pod) { pod.Spec.InitContainers = []corev1.Container{{Name: "istio-init"}} })
	c.events = []corev1.Event{{InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "web"}, Type: hostile, Reason: "CaptureFailed", Message: hostile}}
	commands := [][]string{{"status"}, {"status", "--wait", "--timeout=2s"}, {"list"}, {"explain", "shop/web"}, {"trace", "shop/web", "--to=10.0.0.1:80"}, {"precheck"}, {"report"}, {"test"}}
	for _, failure := range []string{"", "an error", "a warning"} {
		c.hostile = failure
		for _, command := range commands {
			for _, form := range []string{"", "json"} {
				if slices.Contains(command, "--wait") && form != "" {
					continue // the command waits until its timeout
				}
				args := append(command[:len(command):len(command)], "-o", form)
				if command[0] == "report" {
					args = append(args, "--file", t.TempDir()+"/report.tar.gz")
				}
				out, errors, _ := c.run(t, args...)
				what := fmt.Sprintf("%q with %s", args, failure)
				if failure == "an error" && command[0] != "precheck" && !strings.Contains(errors+out, "FORGED") {
					t.Errorf("%s: the error is not shown: %s", what, errors)
				}
				if failure == "a warning" && !strings.Contains(errors, "Warning: ") {
					t.Errorf("%s: the warning is not shown: %s", what, errors)
				}
				expectSafe(t, what, out)
				expectSafe(t, what, errors)
			}
		}
	}
}

// TestLibraryLog makes a library log a hostile text.
func TestLibraryLog(t *testing.T) {
	var out, errors strings.Builder
	if status := execute(t.Context(), []string{"status", "--agent-namespace="}, newScreen(&out), newScreen(&errors)); status == 0 {
		t.Error("the command succeeds")
	}
	klog.Errorf("from the cluster: %s", hostile)
	if got := errors.String(); strings.Count(got, "FORGED captured") != 1 {
		t.Errorf("logged: %s", got)
	}
	expectSafe(t, "the log", errors.String())
}

// answerHostile adds a warning to an answer, or answers with an error. It reports whether it has
// answered.
func answerHostile(w http.ResponseWriter, what string) bool {
	switch what {
	case "a warning":
		w.Header().Set("Warning", "299 - \"from right\u202e\"")
	case "an error":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: 403, Reason: metav1.StatusReasonForbidden, Message: hostile,
		})
		return true
	}
	return false
}
