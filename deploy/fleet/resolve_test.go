// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestPodOwnedBy expects the newest pod of a controller, and a pod that is being deleted only if the
// controller has no other pod.
func TestPodOwnedBy(t *testing.T) {
	t.Parallel()
	owned := func(name, kind, owner, hash string, age time.Duration, ends bool) corev1.Pod {
		return newPod("n1", name, func(pod *corev1.Pod) {
			pod.CreationTimestamp = metav1.NewTime(time.Now().Add(-age))
			if hash != "" {
				pod.Labels = map[string]string{"pod-template-hash": hash}
			}
			if kind != "" {
				pod.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: owner, Controller: new(true)}}
			}
			if ends {
				pod.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			}
		})
	}
	s := &apiServer{pods: []corev1.Pod{
		owned("alone", "", "", "", 0, false),
		owned("ending", "ReplicaSet", "web-5", "5", 0, true),
		owned("old", "ReplicaSet", "web-5", "5", 2*time.Hour, false),
		owned("new", "ReplicaSet", "web-5", "5", time.Hour, false),
		owned("older", "ReplicaSet", "web-5", "5", 3*time.Hour, false),
		owned("other", "ReplicaSet", "web-6", "5", 0, false),
		owned("bare", "ReplicaSet", "db-", "", 0, false),
		owned("job", "Job", "web", "5", 0, false),
		owned("job-of-a-set", "Job", "only-7", "7", 0, false),
		owned("one", "StatefulSet", "one", "", time.Hour, true),
		owned("two", "StatefulSet", "one", "", 0, true),
	}}
	client := s.start(t)
	for _, tt := range []struct{ kind, name, want string }{
		{"Deployment", "web", "new"},
		{"ReplicaSet", "web-5", "new"},
		{"ReplicaSet", "web-6", "other"},
		{"Job", "web", "job"},
		{"StatefulSet", "one", "two"},
		{"Deployment", "db", "no pod of Deployment db is in namespace shop"},
		{"Deployment", "only", "no pod of Deployment only is in namespace shop"},
		{"StatefulSet", "web", "no pod of StatefulSet web is in namespace shop"},
	} {
		got, err := client.PodOwnedBy(t.Context(), "shop", tt.kind, tt.name)
		if err != nil {
			got += err.Error()
		}
		if got != tt.want {
			t.Errorf("of %s %s: %s, want %s", tt.kind, tt.name, got, tt.want)
		}
	}
	s.forbids = "pods"
	if _, err := client.PodOwnedBy(t.Context(), "shop", "Job", "web"); err == nil || !strings.HasPrefix(err.Error(), "listing the pods of namespace shop: ") {
		t.Errorf("got %v", err)
	}
}

// TestServiceAddress finds a port of a Service by the port's number or name.
func TestServiceAddress(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		service := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{{Port: 80, Name: "http"}, {Port: 443, Name: "https"}}}}
		switch {
		case strings.HasSuffix(r.URL.Path, "/missing"):
			http.NotFound(w, r)
			return
		case strings.HasSuffix(r.URL.Path, "/headless"):
			service.Spec.ClusterIP = corev1.ClusterIPNone
		case strings.HasSuffix(r.URL.Path, "/external"):
			service.Spec.ClusterIP = ""
		}
		encode(w, http.StatusOK, service)
	}))
	t.Cleanup(server.Close)
	client, err := NewClient(&rest.Config{Host: server.URL})
	lab.Check(t, err)
	for _, tt := range []struct{ name, port, want string }{
		{"web", "443", "10.0.0.1 443 <nil>"},
		{"web", "http", "10.0.0.1 80 <nil>"},
		{"web", "81", `  no port of Service shop/web is "81"`},
		{"headless", "80", "  there is no address of Service shop/headless itself: trace to one of its pods"},
		{"external", "80", "  there is no address of Service shop/external itself: trace to one of its pods"},
		{"missing", "80", "  reading Service shop/missing: the server could not find the requested resource"},
	} {
		address, number, err := client.ServiceAddress(t.Context(), "shop", tt.name, tt.port)
		if got := fmt.Sprint(address, " ", number, " ", err); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s of %s: %s, want %s", tt.port, tt.name, got, tt.want)
		}
	}
}
