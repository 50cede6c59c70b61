// SPDX-License-Identifier: Apache-2.0

package capturetest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestInterrupted removes everything when ctx ends, and returns soon.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	s := newAPIServer()
	s.stuck = "server"
	ctx, interrupt := context.WithCancel(t.Context())
	s.admit = func(*corev1.Pod) { interrupt() }
	report, err := newTest(t, s, "{}").Run(ctx)
	if !errors.Is(err, context.Canceled) || report.Archive != "" || len(report.Results) > 0 {
		t.Errorf("%+v, %v", report, err)
	}
	s.expectEmpty(t)
}

// TestLostAnswer removes a pod whose creation ended with an error of the API server, also if
// that fails at first.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	s := newAPIServer()
	s.loses, s.flaky = true, 3
	test := newTest(t, s, "{}")
	test.Namespace = "given"
	if _, err := test.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "the store timed out") || len(s.created) != 1 {
		t.Errorf("%d pods were made: %v", len(s.created), err)
	}
	s.expectEmpty(t)
}

// TestLeftovers removes what killed tests left, and nothing of tests that run.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	for _, namespace := range []string{"", "given"} {
		s := newAPIServer()
		test := newTest(t, s, "{}")
		test.Namespace = namespace
		now := time.Now()
		past, undated := now.Add(-time.Minute), time.Time{}
		old, running, strange, none := "capture-cni-test-aaaaaa-redirect", "capture-cni-test-bbbbbb-tproxy", "kube-system", "capture-cni-test-cccccc-redirect"
		if namespace != "" {
			old, running, none = old+"-server", running+"-client", none+"-server"
		}
		for name, until := range map[string]time.Time{old: past, running: now.Add(time.Minute), strange: past, "x" + old: past, old + "x": past, none: undated} {
			meta := testMeta(namespace, name, until)
			if until.IsZero() {
				meta.Annotations = nil
			}
			if namespace == "" {
				s.objects["namespaces/"+name] = &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: meta}
			} else {
				s.objects["namespaces/given/pods/"+name] = &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: meta}
				s.objects["namespaces/given/services/"+name] = &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: meta}
			}
		}
		report, err := test.Run(t.Context())
		if err != nil || count(report)[Passed] != 32 {
			t.Fatalf("%+v, %v", report, err)
		}
		left := map[string]int{"namespaces": s.of("namespaces"), "pods": s.of("pods"), "services": s.of("services")}
		want := map[string]int{"namespaces": 5, "pods": 0, "services": 0}
		if namespace != "" {
			want = map[string]int{"namespaces": 0, "pods": 5, "services": 5}
		}
		if fmt.Sprint(left) != fmt.Sprint(want) {
			t.Errorf("%v are left, want %v: %q", left, want, report.Notes)
		}
		for _, note := range []string{old + " of an earlier test was removed", running + " is of another test, which may need it until " + now.Add(time.Minute).UTC().Format(time.RFC3339), strange + " has the labels of a test", none + " has the labels of a test"} {
			if !strings.Contains(fmt.Sprint(report.Notes), note) {
				t.Errorf("%q is missing: %q", note, report.Notes)
			}
		}
	}
}

// TestRefusals tells a refusal, after which nothing was created, from answers after which
// something can have been.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for code, want := range map[int32]bool{399: false, 400: true, 403: true, 404: true, 422: true, 429: false, 499: true, 500: false, 503: false, 504: false} {
		reason := map[int32]metav1.StatusReason{429: metav1.StatusReasonTooManyRequests, 504: metav1.StatusReasonTimeout}[code]
		err := fmt.Errorf("creating: %w", &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Reason: reason}})
		if got := isRefused(err); got != want {
			t.Errorf("status %d: refused %v, want %v", code, got, want)
		}
	}
	if isRefused(errors.New("connection reset")) {
		t.Error("a lost connection is a refusal")
	}
}

// TestRemoval deletes an object once and waits until it is gone, also if the API server removes
// it already; a refusal ends the wait.
func TestRemoval(t *testing.T) {
	t.Parallel()
	left := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "left"}}
	for answer, want := range map[string]string{"": "", "409": "", "not allowed": "removing namespace left: not allowed;"} {
		s := newAPIServer()
		s.keeps = true
		s.objects["namespaces/left"] = &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
		s.refuses = func(method, _ string, _ *corev1.Pod) string {
			if method == http.MethodDelete {
				return answer
			}
			if len(s.requests) > 5 {
				delete(s.objects, "namespaces/left")
			}
			return ""
		}
		err := newTest(t, s, "{}").remove(t.Context(), left)
		deletions := strings.Count(strings.Join(s.requests, " "), http.MethodDelete)
		if deletions != 1 || (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) || err == nil && len(s.requests) < 6 {
			t.Errorf("%q: %v, after %q", answer, err, s.requests)
		}
	}
}

// TestOneStuckRemoval removes an object although another one stays.
func TestOneStuckRemoval(t *testing.T) {
	t.Parallel()
	s := newAPIServer()
	test := newTest(t, s, "{}")
	s.objects["namespaces/given/services/s"] = &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}}
	s.objects["namespaces/given/pods/p"] = &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	s.refuses = func(method, path string, _ *corev1.Pod) string {
		if method == http.MethodDelete && strings.HasSuffix(path, "/s") {
			return "500"
		}
		return ""
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	stays, goes := metav1.ObjectMeta{Namespace: "given", Name: "s"}, metav1.ObjectMeta{Namespace: "given", Name: "p"}
	err := test.remove(ctx, &corev1.Service{ObjectMeta: stays}, &corev1.Pod{ObjectMeta: goes})
	if _, is := s.objects["namespaces/given/pods/p"]; is || err == nil {
		t.Errorf("the pod is still there: %t; %v", is, err)
	}
}

// TestStuckRemoval names what it could not remove.
func TestStuckRemoval(t *testing.T) {
	t.Parallel()
	s := newAPIServer()
	s.keeps = true
	test := newTest(t, s, "{}")
	s.objects["namespaces/stuck"] = &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
	s.objects["namespaces/given/pods/p"] = &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	s.objects["namespaces/given/services/s"] = &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}}
	for want, left := range map[string]object{
		"kubectl delete namespace stuck":                  &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "stuck"}},
		"kubectl --namespace given get pods,services":     &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "given", Name: "p"}},
		"kubectl --namespace given get pods,services --s": &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "given", Name: "s"}},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := test.remove(ctx, left); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
		cancel()
	}
}
