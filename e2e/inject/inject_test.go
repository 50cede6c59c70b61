// SPDX-License-Identifier: Apache-2.0

package inject_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/capture-cni/capture-cni/e2e/inject"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// container holds the fields that the tests compare.
type container struct {
	Name     string
	UID, GID int64
	Add      string
	Always   bool
}

var (
	proxy       = container{Name: "istio-proxy", UID: 1337, GID: 1337}
	nativeProxy = container{Name: "istio-proxy", UID: 1337, GID: 1337, Always: true}
	tproxy      = container{Name: "istio-proxy", UID: 0, GID: 1337, Add: "NET_ADMIN", Always: true}
	istioInit   = container{Name: "istio-init", Add: "NET_ADMIN,NET_RAW"}
	app         = container{Name: "app", UID: -1, GID: -1}
	migrate     = container{Name: "migrate", UID: -1, GID: -1}
)

func TestInjected(t *testing.T) {
	for _, tt := range []struct {
		name           string
		opts           inject.Options
		annotations    map[string]string
		initContainers []container
		containers     []container
		wrote          map[string]string // annotations
	}{
		{
			name:           "a native sidecar comes first",
			initContainers: []container{nativeProxy, migrate},
			containers:     []container{app},
			wrote: map[string]string{
				"sidecar.istio.io/status":                          `{"initContainers":["istio-proxy"],"containers":null,"volumes":null,"imagePullSecrets":null,"revision":"default"}`,
				"sidecar.istio.io/interceptionMode":                "REDIRECT",
				"traffic.sidecar.istio.io/includeInboundPorts":     "*",
				"traffic.sidecar.istio.io/excludeInboundPorts":     "15020",
				"traffic.sidecar.istio.io/includeOutboundIPRanges": "*",
				"traffic.sidecar.istio.io/excludeOutboundIPRanges": "",
			},
		},
		{
			name:           "istio-init before it",
			opts:           inject.Options{Init: true},
			initContainers: []container{istioInit, nativeProxy, migrate},
			containers:     []container{app},
			wrote:          map[string]string{"sidecar.istio.io/status": `{"initContainers":["istio-init","istio-proxy"],"containers":null,"volumes":null,"imagePullSecrets":null,"revision":"default"}`},
		},
		{
			name:           "a classic sidecar comes last, and so does istio-init",
			opts:           inject.Options{Init: true},
			annotations:    map[string]string{"sidecar.istio.io/nativeSidecar": "false"},
			initContainers: []container{migrate, istioInit},
			containers:     []container{app, proxy},
			wrote:          map[string]string{"sidecar.istio.io/status": `{"initContainers":["istio-init"],"containers":["istio-proxy"],"volumes":null,"imagePullSecrets":null,"revision":"default"}`},
		},
		{
			name:           "transparent",
			annotations:    map[string]string{"sidecar.istio.io/interceptionMode": "TPROXY"},
			initContainers: []container{tproxy, migrate},
			containers:     []container{app},
			wrote:          map[string]string{"sidecar.istio.io/interceptionMode": "TPROXY"},
		},
		{
			name:           "mode NONE needs no istio-init",
			opts:           inject.Options{Init: true},
			annotations:    map[string]string{"sidecar.istio.io/interceptionMode": "NONE"},
			initContainers: []container{nativeProxy, migrate},
			containers:     []container{app},
		},
		{
			name:           "the pod's own excludes, and the status port",
			annotations:    map[string]string{"traffic.sidecar.istio.io/excludeInboundPorts": "9000", "traffic.sidecar.istio.io/includeInboundPorts": ""},
			initContainers: []container{nativeProxy, migrate},
			containers:     []container{app},
			wrote: map[string]string{
				"traffic.sidecar.istio.io/excludeInboundPorts": "9000,15020",
				"traffic.sidecar.istio.io/includeInboundPorts": "",
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pod := newPod()
			for key, value := range tt.annotations {
				pod.Annotations[key] = value
			}
			got := review(t, tt.opts, pod)
			if diff := cmp.Diff(tt.initContainers, summarize(got.Spec.InitContainers)); diff != "" {
				t.Errorf("init containers (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.containers, summarize(got.Spec.Containers)); diff != "" {
				t.Errorf("containers (-want +got):\n%s", diff)
			}
			for key, want := range tt.wrote {
				if value := got.Annotations[key]; value != want {
					t.Errorf("%s is %q, want %q", key, value, want)
				}
			}
			if got.Annotations["own"] != "kept" {
				t.Error("the pod's own annotation is lost")
			}
			if diff := cmp.Diff(got, review(t, tt.opts, got)); diff != "" {
				t.Errorf("injected twice (-once +twice):\n%s", diff)
			}
		})
	}
}

func TestInitArguments(t *testing.T) {
	pod := newPod()
	pod.Annotations["traffic.sidecar.istio.io/excludeOutboundPorts"] = "5432"
	got := review(t, inject.Options{Init: true, InitImage: "local.test/init:1"}, pod).Spec.InitContainers[0]
	want := strings.Join(lab.IstioInit(), " ") + " -o 5432"
	if args := strings.Join(got.Args, " "); args != want {
		t.Errorf("arguments\n%s\nwant\n%s", args, want)
	}
	if got.Image != "local.test/init:1" || got.ImagePullPolicy != corev1.PullNever {
		t.Errorf("image %s, %s", got.Image, got.ImagePullPolicy)
	}
}

func TestLeftAlone(t *testing.T) {
	for name, change := range map[string]func(*corev1.Pod){
		"label":        func(p *corev1.Pod) { p.Labels = map[string]string{"sidecar.istio.io/inject": "false"} },
		"annotation":   func(p *corev1.Pod) { p.Annotations["sidecar.istio.io/inject"] = "false" },
		"host network": func(p *corev1.Pod) { p.Spec.HostNetwork = true },
		"label over annotation": func(p *corev1.Pod) {
			p.Labels = map[string]string{"sidecar.istio.io/inject": "no"}
			p.Annotations["sidecar.istio.io/inject"] = "true"
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := newPod()
			change(pod)
			if diff := cmp.Diff(pod, review(t, inject.Options{Init: true}, pod)); diff != "" {
				t.Errorf("changed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNoReview(t *testing.T) {
	for _, body := range []string{"", "{}", "not JSON"} {
		recorder := httptest.NewRecorder()
		inject.Handler(inject.Options{}).ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/inject", strings.NewReader(body)))
		if recorder.Code != http.StatusBadRequest {
			t.Errorf("body %q: status %d, want 400", body, recorder.Code)
		}
	}
}

func TestNoPod(t *testing.T) {
	if response := ask(t, inject.Options{}, []byte(`"not a pod"`)); response.Allowed || response.UID != "1" {
		t.Errorf("got %+v, want a refusal of request 1", response)
	}
}

func newPod() *corev1.Pod {
	pod := &corev1.Pod{}
	pod.Name = "web"
	pod.Annotations = map[string]string{"own": "kept"}
	pod.Spec.InitContainers = []corev1.Container{{Name: "migrate"}}
	pod.Spec.Containers = []corev1.Container{{Name: "app"}}
	return pod
}

// ask sends one request and reads the answer.
func ask(t *testing.T, opts inject.Options, object []byte) *admissionv1.AdmissionResponse {
	t.Helper()
	body, err := json.Marshal(admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
		UID: "1", Object: runtime.RawExtension{Raw: object},
	}})
	if err != nil {
		t.Fatal(err)
	}
	recorder := httptest.NewRecorder()
	inject.Handler(opts).ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/inject", bytes.NewReader(body)))
	var answer admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &answer); err != nil {
		t.Fatalf("%v: %s", err, recorder.Body)
	}
	return answer.Response
}

// review returns the pod as the webhook's patch leaves it.
func review(t *testing.T, opts inject.Options, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	raw, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	response := ask(t, opts, raw)
	if !response.Allowed {
		t.Fatalf("refused: %+v", response.Result)
	}
	got := pod.DeepCopy()
	if response.Patch == nil {
		return got
	}
	var patch []struct {
		Op, Path string
		Value    json.RawMessage
	}
	if err := json.Unmarshal(response.Patch, &patch); err != nil {
		t.Fatal(err)
	}
	fields := map[string]any{
		"/metadata/annotations": &got.Annotations,
		"/spec/containers":      &got.Spec.Containers,
		"/spec/initContainers":  &got.Spec.InitContainers,
	}
	for _, op := range patch {
		field, ok := fields[op.Path]
		if !ok || op.Op != "add" {
			t.Fatalf("unexpected operation %s %s", op.Op, op.Path)
		}
		if err := json.Unmarshal(op.Value, field); err != nil {
			t.Fatal(err)
		}
	}
	return got
}

func summarize(containers []corev1.Container) []container {
	var list []container
	for _, c := range containers {
		one := container{Name: c.Name, UID: -1, GID: -1, Always: c.RestartPolicy != nil}
		if sc := c.SecurityContext; sc != nil {
			one.UID, one.GID = *sc.RunAsUser, *sc.RunAsGroup
			var added []string
			for _, capability := range sc.Capabilities.Add {
				added = append(added, string(capability))
			}
			one.Add = strings.Join(added, ",")
		}
		list = append(list, one)
	}
	return list
}
