// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/install/report"
)

// apiServer serves lists of pods, DaemonSets, Leases and Nodes, page by page, as protobuf.
type apiServer struct {
	sets    []appsv1.DaemonSet // if empty, daemonSet is served
	pods    []corev1.Pod
	leases  []coordination.Lease
	nodes   []corev1.Node
	forbids string // a resource
	breaks  string // a resource
	asked   []string
}

func (s *apiServer) start(t testing.TB) *Client {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	client, err := NewClient(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.asked = append(s.asked, r.Method+" "+r.URL.Path); len(s.asked) > 200 {
		http.Error(w, "more requests than any fleet takes", http.StatusBadRequest)
		return
	}
	resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	first, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	switch {
	case resource == s.forbids:
		status := &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: resource + " is forbidden"}
		encode(w, http.StatusForbidden, status)
	case resource == s.breaks:
		http.Error(w, resource+" are broken", http.StatusBadRequest)
	case resource == "pods":
		pods := slices.Clone(s.pods)
		if node, is := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "spec.nodeName="); is {
			pods = slices.DeleteFunc(pods, func(pod corev1.Pod) bool { return pod.Spec.NodeName != node })
		}
		items, rest := page(pods, first, limit)
		encode(w, http.StatusOK, &corev1.PodList{ListMeta: metav1.ListMeta{Continue: rest}, Items: items})
	case resource == "nodes":
		items, rest := page(s.nodes, first, limit)
		encode(w, http.StatusOK, &corev1.NodeList{ListMeta: metav1.ListMeta{Continue: rest}, Items: items})
	case r.URL.Path == "/apis/apps/v1/namespaces/capture-cni/daemonsets" && len(s.sets) > 0:
		encode(w, http.StatusOK, &appsv1.DaemonSetList{Items: s.sets})
	case r.URL.Path == "/apis/apps/v1/namespaces/capture-cni/daemonsets" && r.URL.Query().Get("labelSelector") == "app.kubernetes.io/component=node,app.kubernetes.io/name=capture-cni":
		encode(w, http.StatusOK, &appsv1.DaemonSetList{Items: []appsv1.DaemonSet{daemonSet}})
	case strings.HasSuffix(r.URL.Path, "/daemonsets"):
		encode(w, http.StatusOK, &appsv1.DaemonSetList{})
	case r.URL.Query().Get("labelSelector") == "app.kubernetes.io/component=node-state,app.kubernetes.io/name=capture-cni":
		items, rest := page(s.leases, first, limit)
		encode(w, http.StatusOK, &coordination.LeaseList{ListMeta: metav1.ListMeta{Continue: rest}, Items: items})
	default:
		http.NotFound(w, r)
	}
}

func page[T any](all []T, first, limit int) (items []T, rest string) {
	end := min(first+limit, len(all))
	if end < len(all) {
		rest = strconv.Itoa(end)
	}
	return all[first:end], rest
}

func encode(w http.ResponseWriter, code int, object runtime.Object) {
	scheme := runtime.NewScheme()
	_, _, _ = corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), coordination.AddToScheme(scheme)
	codecs := serializer.NewCodecFactory(scheme)
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	group := corev1.SchemeGroupVersion
	switch object.(type) {
	case *appsv1.DaemonSetList:
		group = appsv1.SchemeGroupVersion
	case *coordination.LeaseList:
		group = coordination.SchemeGroupVersion
	}
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	w.WriteHeader(code)
	_ = codecs.EncoderForVersion(info.Serializer, group).Encode(object, w)
}

// newLease returns the Lease of a node whose agent reported the state this long ago.
func newLease(node string, ago time.Duration, state report.NodeState) coordination.Lease {
	holder, seconds, renewed := "agent-of-"+node, int32(660), metav1.NewMicroTime(time.Now().Add(-ago))
	return coordination.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "capture-cni", Name: node, Labels: report.LeaseLabels(), Annotations: map[string]string{report.NodeAnnotation: state.Encode()},
		},
		Spec: coordination.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &renewed},
	}
}

// daemonSet is the release's DaemonSet.
var daemonSet = appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "capture-cni", Name: "capture-cni-node", UID: "daemon-set"}}

// newAgent returns the agent's pod on a node.
func newAgent(node string, ready corev1.ConditionStatus, containers ...string) corev1.Pod {
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "capture-cni", Name: "agent-of-" + node,
			Labels:          map[string]string{"app.kubernetes.io/name": "capture-cni", "app.kubernetes.io/component": "node"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&daemonSet, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))},
		},
		Spec:   corev1.PodSpec{NodeName: node, HostNetwork: true, ServiceAccountName: "capture-cni-node"},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, Message: "containers with unready status: [installer]"}}},
	}
	for _, name := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: name})
	}
	return pod
}

// newPod returns a pod of the mesh.
func newPod(node, name string, change func(*corev1.Pod)) corev1.Pod {
	pod := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Annotations: map[string]string{"sidecar.istio.io/status": "{}"}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{
			{Name: "app", Image: "app"}, {Name: "istio-proxy", Image: "proxyv2", Args: []string{"proxy", "sidecar"}},
		}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if change != nil {
		change(&pod)
	}
	return pod
}

// large makes a pod as large as istiod's injector makes it.
func large(pod *corev1.Pod) {
	pod.Annotations["sidecar.istio.io/status"] = strings.Repeat("x", 1200)
	for i := range pod.Spec.Containers {
		for variable := range 40 {
			pod.Spec.Containers[i].Env = append(pod.Spec.Containers[i].Env, corev1.EnvVar{Name: fmt.Sprintf("ISTIO_META_%d", variable), Value: strings.Repeat("v", 40)})
		}
	}
}
