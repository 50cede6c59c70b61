// SPDX-License-Identifier: Apache-2.0

package capturetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
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
		for name, until := range map[string]time.Time{"old": now.Add(-time.Minute), "running": now.Add(time.Minute)} {
			meta := testMeta(name, until)
			if namespace == "" {
				s.objects["namespaces/"+name] = &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: meta}
			} else {
				s.objects["namespaces/given/pods/"+name] = &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: meta}
				s.objects["namespaces/given/services/"+name] = &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: meta}
			}
		}
		report, err := test.Run(t.Context())
		if err != nil || count(report)[Passed] != 16 {
			t.Fatalf("%+v, %v", report, err)
		}
		left := map[string]int{"namespaces": s.of("namespaces"), "pods": s.of("pods"), "services": s.of("services")}
		want := map[string]int{"namespaces": 1, "pods": 0, "services": 0}
		if namespace != "" {
			want = map[string]int{"namespaces": 0, "pods": 1, "services": 1}
		}
		if fmt.Sprint(left) != fmt.Sprint(want) || !strings.Contains(fmt.Sprint(report.Notes), "old of an earlier test was removed") || !strings.Contains(fmt.Sprint(report.Notes), "running is of another test") {
			t.Errorf("%v are left, want %v: %q", left, want, report.Notes)
		}
	}
}

// TestStuckRemoval names what it could not remove.
func TestStuckRemoval(t *testing.T) {
	t.Parallel()
	s := newAPIServer()
	s.keeps = true
	cluster := s.start(t)
	s.objects["namespaces/stuck"] = &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
	s.objects["namespaces/given/pods/p"] = &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	s.objects["namespaces/given/services/s"] = &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}}
	for want, p := range map[string]place{
		"kubectl delete namespace stuck":                  {namespace: "stuck", own: true},
		"kubectl --namespace given get pods,services":     {namespace: "given", pods: []string{"p"}},
		"kubectl --namespace given get pods,services --s": {namespace: "given", services: []string{"s"}},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		p.cluster = cluster
		if err := p.remove(ctx); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
		cancel()
	}
}
