// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

// TestAnswer asks for pods, and for none, and expects how each was read: the first attempt for a UID may be answered
// from the API server's cache, and is repeated if that has no such pod.
func TestAnswer(t *testing.T) {
	lab.RequireRoot(t)
	api, err := kubeapi.Start()
	lab.Check(t, err)
	t.Cleanup(func() { _ = api.Close() })
	pod := &corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID = "shop", "web", "u1"
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", Controller: new(true)}}
	pod.Spec.Containers = []corev1.Container{{Name: "app"}}
	api.Put(pod)
	var mu sync.Mutex
	var queries []string
	api.Misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if queries = append(queries, r.URL.RawQuery); !strings.HasSuffix(r.URL.Path, "/forbidden") {
			return false
		}
		kubeapi.WriteStatus(w, r, http.StatusForbidden, metav1.StatusReasonForbidden, "no")
		return true
	})
	dir := t.TempDir()
	_, err = api.WriteKubeconfig(dir)
	lab.Check(t, err)
	const cached, fresh = "resourceVersion=0", ""
	for name, tt := range map[string]struct {
		version, attempt int
		pod, uid, dir    string
		queries          []string
		kind             lookup.FaultKind // "" for the pod
		message          string
	}{
		"another version":   {capture.PodVersion + 1, 1, "web", "u1", dir, nil, "", ""},
		"none":              {capture.PodVersion, 1, "", "", dir, nil, "", ""},
		"none, no files":    {capture.PodVersion, 1, "", "", t.TempDir(), nil, lookup.NoCredentials, "check that the node agent runs"},
		"a pod, no files":   {capture.PodVersion, 1, "web", "u1", t.TempDir(), nil, lookup.NoCredentials, "check that the node agent runs"},
		"a pod":             {capture.PodVersion, 1, "web", "u1", dir, []string{cached}, "", ""},
		"again":             {capture.PodVersion, 2, "web", "u1", dir, []string{fresh}, "", ""},
		"without a UID":     {capture.PodVersion, 1, "web", "", dir, []string{fresh}, "", ""},
		"without a number":  {capture.PodVersion, 0, "web", "u1", dir, []string{fresh}, "", ""},
		"another UID":       {capture.PodVersion, 1, "web", "u2", dir, []string{cached, fresh}, lookup.Gone, "has UID u1, expected u2"},
		"gone":              {capture.PodVersion, 1, "gone", "u1", dir, []string{cached, fresh}, lookup.Gone, "not found"},
		"gone, once more":   {capture.PodVersion, 3, "gone", "u1", dir, []string{fresh}, lookup.Gone, "not found"},
		"forbidden, cached": {capture.PodVersion, 1, "forbidden", "u1", dir, []string{cached}, lookup.Refused, `needs the permission "get pods"`},
	} {
		queries = nil
		request := lookup.Request{Version: tt.version, Directory: tt.dir, Attempt: tt.attempt}
		request.Pod = capture.PodRef{Namespace: "shop", Name: tt.pod, UID: tt.uid}
		answer := Answer(t.Context(), request)
		if answer.Version != capture.PodVersion || !slices.Equal(queries, tt.queries) {
			t.Errorf("%s: answer %+v after %q, want %q", name, answer, queries, tt.queries)
		}
		if answer.Fault != nil || tt.kind != "" {
			if answer.Pod != nil || answer.Fault == nil || answer.Fault.Kind != tt.kind || !strings.Contains(answer.Fault.Message, tt.message) {
				t.Errorf("%s: answer %+v, fault %+v", name, answer, answer.Fault)
			}
			continue
		}
		if found := answer.Pod != nil; found != (tt.queries != nil) || found != (answer.UID == "u1") || found != answer.HasController ||
			found && answer.Pod.Containers[0].Name != "app" {
			t.Errorf("%s: answer %+v", name, answer)
		}
	}
}

// TestDial connects to the first address that accepts, and returns why none does.
func TestDial(t *testing.T) {
	t.Parallel()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	lab.Check(t, err)
	open := server.Addr().String()
	closing, err := net.Listen("tcp", "127.0.0.1:0")
	lab.Check(t, err)
	closed := closing.Addr().String()
	lab.Check(t, closing.Close())
	defer server.Close()
	for address, want := range map[string]string{open: "<nil>", closed: "connection refused", "127.0.0.1": "missing port", "a.invalid:1": "lookup a.invalid"} {
		for attempt := 1; attempt < 4; attempt++ {
			conn, err := dialer{attempt}.dial(t.Context(), "tcp", address)
			if got := fmt.Sprint(err); !strings.Contains(got, want) || (conn == nil) != (err != nil) {
				t.Errorf("%s: %v, %s, want %s", address, conn, got, want)
			}
			if conn != nil {
				_ = conn.Close()
			}
		}
	}
}
