// SPDX-License-Identifier: Apache-2.0

package capturetest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/report"
)

// apiServer stores objects by path. Its pods start at once, and those of clients end with
// what observe returns for each destination.
type apiServer struct {
	mu      sync.Mutex
	objects map[string]any
	created []*corev1.Pod

	requests []string
	refuses  func(method, path string, pod *corev1.Pod) string // why, or another status than 403; "": it does not
	observe  func(to netip.AddrPort, mode Mode) report.TestObservation
	stuck    string // part of the name of pods that do not start
	admit    func(*corev1.Pod)
	keeps    bool // deletes nothing
	loses    bool // creates pods, and answers with an error
	flaky    int  // answers so many deletions with an error
}

func newAPIServer() *apiServer {
	return &apiServer{objects: map[string]any{}, observe: asCaptured, refuses: func(string, string, *corev1.Pod) string { return "" }, admit: func(*corev1.Pod) {}}
}

func (s *apiServer) start(t *testing.T) *fleet.Client {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	client, err := fleet.NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	answer := func(code int, object any) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(object)
	}
	fail := func(code int, reason metav1.StatusReason, message string) {
		answer(code, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message})
	}
	path := strings.TrimPrefix(r.URL.Path, "/api/v1/")
	pod := &corev1.Pod{}
	if r.Method == http.MethodPost && strings.HasSuffix(path, "/pods") {
		_ = json.NewDecoder(r.Body).Decode(pod)
	}
	s.requests = append(s.requests, r.Method+" "+path)
	if why := s.refuses(r.Method, path, pod); why != "" {
		if code, err := strconv.Atoi(why); err == nil {
			fail(code, map[int]metav1.StatusReason{409: metav1.StatusReasonConflict}[code], why)
			return
		}
		fail(http.StatusForbidden, metav1.StatusReasonForbidden, why)
		return
	}
	if r.Method == http.MethodDelete && s.flaky > 0 {
		s.flaky--
		fail(http.StatusInternalServerError, metav1.StatusReasonInternalError, "no leader")
		return
	}
	switch object, exists := s.objects[path]; {
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/pods"):
		s.run(pod)
		s.created = append(s.created, pod)
		s.objects[path+"/"+pod.Name] = pod
		if s.loses {
			fail(http.StatusInternalServerError, metav1.StatusReasonInternalError, "the store timed out")
			return
		}
		answer(http.StatusCreated, pod)
	case r.Method == http.MethodPost && strings.HasSuffix(path, "/services"):
		service := &corev1.Service{}
		_ = json.NewDecoder(r.Body).Decode(service)
		service.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}
		service.Spec.ClusterIPs = []string{"10.96.0.7", "fd00:96::7"}
		s.objects[path+"/"+service.Name] = service
		answer(http.StatusCreated, service)
	case r.Method == http.MethodPost:
		namespace := &corev1.Namespace{}
		_ = json.NewDecoder(r.Body).Decode(namespace)
		namespace.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}
		s.objects[path+"/"+namespace.Name] = namespace
		answer(http.StatusCreated, namespace)
	case r.URL.Query().Get("labelSelector") != "":
		answer(http.StatusOK, s.list(path))
	case !exists:
		fail(http.StatusNotFound, metav1.StatusReasonNotFound, path+" not found")
	case r.Method == http.MethodDelete && !s.keeps:
		for name := range s.objects {
			if name == path || strings.HasPrefix(name, path+"/") {
				delete(s.objects, name)
			}
		}
		answer(http.StatusOK, object)
	default:
		answer(http.StatusOK, object)
	}
}

// becomes gives a pod, when it is read, these states one after the other; the last one stays.
func (s *apiServer) becomes(pod string, states ...corev1.PodStatus) {
	s.stuck = pod
	s.refuses = func(method, path string, _ *corev1.Pod) string {
		if method == http.MethodGet && strings.HasSuffix(path, "/pods/"+pod) && s.objects[path] != nil {
			s.objects[path].(*corev1.Pod).Status = states[0]
			states = states[min(1, len(states)-1):]
		}
		return ""
	}
}

// list returns the objects directly below a path.
func (s *apiServer) list(path string) any {
	items := []any{}
	for name, object := range s.objects {
		if rest, below := strings.CutPrefix(name, path+"/"); below && !strings.Contains(rest, "/") {
			items = append(items, object)
		}
	}
	kind := map[string]string{"namespaces": "NamespaceList", "pods": "PodList", "services": "ServiceList"}[path[strings.LastIndex(path, "/")+1:]]
	return map[string]any{"apiVersion": "v1", "kind": kind, "items": items}
}

// run is what admission, scheduler and kubelet do.
func (s *apiServer) run(pod *corev1.Pod) {
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	s.admit(pod)
	if s.stuck != "" && strings.Contains(pod.Name, s.stuck) {
		return
	}
	ip := "10.244.0.1"
	if strings.HasSuffix(pod.Name, report.TestServer) {
		ip = "10.244.0.2"
	}
	pod.Status.PodIPs = []corev1.PodIP{{IP: ip}, {IP: strings.Replace(ip, "10.244.0.", "fd00:244::", 1)}}
	for _, container := range pod.Spec.Containers {
		status := corev1.ContainerStatus{Name: container.Name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
		if strings.HasSuffix(pod.Name, report.TestClient) && container.Name == application {
			status.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: s.message(pod, container.Command)}}
		}
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, status)
	}
}

func (s *apiServer) message(pod *corev1.Pod, command []string) string {
	var observations []report.TestObservation
	for _, argument := range command {
		if to, ok := strings.CutPrefix(argument, "--to="); ok {
			observations = append(observations, s.observe(netip.MustParseAddrPort(to), Mode(pod.Annotations["sidecar.istio.io/interceptionMode"])))
		}
	}
	message, _ := report.EncodeTest(observations)
	return string(message)
}

// asCaptured is what a connection meets where capture works.
func asCaptured(to netip.AddrPort, mode Mode) report.TestObservation {
	client, server, inside := "10.244.0.1", "10.244.0.2", "127.0.0.6"
	if to.Addr().Is6() {
		client, server, inside = "fd00:244::1", "fd00:244::2", "::6"
	}
	if mode == TProxy {
		inside = client
	}
	from, backend := netip.MustParseAddr(client), to
	if to.Port() == servicePort {
		backend = netip.AddrPortFrom(netip.MustParseAddr(server), 8080)
	}
	o := report.TestObservation{To: to}
	if to.Port() != 8081 {
		o.Lines = append(o.Lines, report.TestLine{By: report.TestProxy(report.TestClient, "outbound"), Client: from, Original: to})
	}
	seen := from
	if to.Port() != 8082 {
		o.Lines = append(o.Lines, report.TestLine{By: report.TestProxy(report.TestServer, "inbound"), Client: from, Original: backend})
		seen = netip.MustParseAddr(inside)
	}
	o.Lines = append(o.Lines, report.TestLine{By: report.TestApplication, Client: seen})
	return o
}
