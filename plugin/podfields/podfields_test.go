// SPDX-License-Identifier: Apache-2.0

package podfields_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podfields"
)

// TestPodJSON keeps the JSON form stable: another version of the project reads it.
func TestPodJSON(t *testing.T) {
	t.Parallel()
	const want = `{"annotations":{"sidecar.istio.io/inject":"yes","sidecar.istio.io/status":"","traffic.sidecar.istio.io/excludeOutboundPorts":"80, 81","traffic.sidecar.istio.io/unknown":""},` +
		`"runtimeClass":"runc","groups":[5,1337,8],` +
		`"containers":[{"name":"istio-init","uid":{"number":5,"fromPod":true},"gid":{"number":6,"fromPod":true},"init":true,"netAdmin":true},` +
		`{"name":"istio-validation","uid":{"number":5,"fromPod":true},"gid":{"number":6,"fromPod":true},"init":true,"keepsRunning":true},` +
		`{"name":"app","uid":{"number":7},"gid":{"number":6,"fromPod":true},"noNewPrivileges":true},` +
		`{"name":"istio-proxy","uid":{"number":5,"fromPod":true},"gid":{"number":6,"fromPod":true},"proxyType":"sidecar","env":{"ISTIO_DUAL_STACK":"1","ISTIO_META_DNS_CAPTURE":"true"}}]}`
	got, err := json.Marshal(podfields.Of(everyFieldPod()))
	if err != nil || string(got) != want {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
	for _, pod := range []capture.Pod{podfields.Of(everyFieldPod()), podfields.Of(meshedPod()), podfields.Of(meshedPod(native)), podfields.Of(&corev1.Pod{})} {
		sent, err := json.Marshal(pod)
		var got capture.Pod
		if err = errors.Join(err, json.Unmarshal(sent, &got)); err != nil || !reflect.DeepEqual(got, pod) {
			t.Errorf("received %+v, sent %+v, %v", got, pod, err)
		}
	}
}

// TestPodHasDecidingFields changes fields of a Kubernetes pod: only those that decide
// change its Pod.
func TestPodHasDecidingFields(t *testing.T) {
	t.Parallel()
	app := func(change func(*corev1.Container)) func(*corev1.Pod) {
		return func(p *corev1.Pod) { change(&p.Spec.Containers[0]) }
	}
	deciding := map[string]func(*corev1.Pod){
		"inject label":  labelled(inject, "false"),
		"unknown key":   annotated(traffic+"other", ""),
		"runtime class": func(p *corev1.Pod) { p.Spec.RuntimeClassName = new("kata") },
		"proxy type":    withArgs("proxy", "router"),
		"valueFrom": func(p *corev1.Pod) {
			p.Spec.Containers[1].Env = []corev1.EnvVar{{Name: dropInvalid, ValueFrom: &corev1.EnvVarSource{}}}
		},
		"pod's uid": func(p *corev1.Pod) { p.Spec.SecurityContext.RunAsUser = new(int64(1)) },
		"pod's gid": func(p *corev1.Pod) { p.Spec.SecurityContext.RunAsGroup = new(int64(1)) },
		"uid":       app(func(c *corev1.Container) { c.SecurityContext.RunAsUser = new(int64(1)) }),
		"gid":       app(func(c *corev1.Container) { c.SecurityContext.RunAsGroup = new(int64(1)) }),
		"the pod's uid as its own": app(func(c *corev1.Container) {
			c.SecurityContext.RunAsGroup = new(int64(6))
		}),
		"fsGroup":            func(p *corev1.Pod) { p.Spec.SecurityContext.FSGroup = new(int64(9)) },
		"supplementalGroups": func(p *corev1.Pod) { p.Spec.SecurityContext.SupplementalGroups = []int64{8} },
		"escalation":         app(func(c *corev1.Container) { c.SecurityContext.AllowPrivilegeEscalation = nil }),
		"escalation allowed": app(func(c *corev1.Container) { c.SecurityContext.AllowPrivilegeEscalation = new(true) }),
		"privileged":         app(func(c *corev1.Container) { c.SecurityContext.Privileged = new(true) }),
		"capabilities":       app(func(c *corev1.Container) { c.SecurityContext.Capabilities = capabilities("ALL").Capabilities }),
		"name":               app(func(c *corev1.Container) { c.Name = "other" }),
		"restart policy":     app(func(c *corev1.Container) { c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways) }),
		"one more":           withInit("setup", nil),
		"native sidecar":     native,
	}
	for _, mesh := range config.Meshes() {
		for _, a := range capture.Annotations(mesh) {
			deciding["annotation "+a.Key] = func(p *corev1.Pod) {
				if a.Key == inject {
					delete(p.Labels, a.Key) // it overrides the annotation
				}
				if _, ok := p.Annotations[a.Key]; ok {
					delete(p.Annotations, a.Key)
				} else {
					p.Annotations[a.Key] = ""
				}
			}
		}
	}
	for _, name := range []string{disableProxy, dnsCapture, dualStack, dropInvalid, "DROP_INVALID"} {
		deciding["variable "+name] = withEnv(name, "0")
	}
	other := map[string]func(*corev1.Pod){
		"status":             annotated(status, `{"revision": "default"}`),
		"unknown key's text": annotated(traffic+"unknown", "x"),
		"overridden":         annotated(inject, "false"),
		"annotation":         annotated("example.com/other", "x"),
		"annotation's case":  annotated("traffic.sidecar.istio.io", "x"),
		"label":              func(p *corev1.Pod) { p.Labels["app"] = "web" },
		"variable":           withEnv("OTHER", "x"),
		"the app's variable": app(func(c *corev1.Container) { c.Env = append(c.Env, corev1.EnvVar{Name: dnsCapture, Value: "true"}) }),
		"the app's args":     app(func(c *corev1.Container) { c.Args = []string{"proxy", "router"} }),
		"more args":          withArgs("proxy", "sidecar", "--x"),
		"image":              app(func(c *corev1.Container) { c.Image = "x" }),
		"capability":         app(func(c *corev1.Container) { c.SecurityContext.Capabilities = capabilities("NET_RAW").Capabilities }),
		"node":               func(p *corev1.Pod) { p.Spec.NodeName = "x" },
		"status of the pod":  func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.1" },
	}
	base := podfields.Of(everyFieldPod())
	for same, changes := range map[bool]map[string]func(*corev1.Pod){false: deciding, true: other} {
		for name, change := range changes {
			pod := everyFieldPod()
			change(pod)
			if got := podfields.Of(pod); reflect.DeepEqual(got, base) != same {
				t.Errorf("%s: unchanged is %v, want %v: %+v", name, !same, same, got)
			}
		}
	}
}

// TestPodIsSmall expects a small Pod of a Kubernetes pod with large values.
func TestPodIsSmall(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	groups := make([]int64, 1<<17)
	for i := range groups {
		groups[i] = int64(i)
	}
	pod := podfields.Of(meshedPod(
		func(p *corev1.Pod) { p.Spec.SecurityContext = &corev1.PodSecurityContext{SupplementalGroups: groups} },
		withEnv(dropInvalid, long), withEnv("OTHER", long), withArgs("proxy", long, long),
		annotated(status, long), annotated(traffic+"unknown", long), annotated("example.com/other", long)))
	if sent, err := json.Marshal(pod); err != nil || len(sent) > 1<<10 {
		t.Errorf("%d bytes, %v", len(sent), err)
	}
}

// TestGroups has the most groups that are listed, and one more.
func TestGroups(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{99: 99, 100: 100, 101: 1} {
		groups := slices.Repeat([]int64{5}, n)
		got := podfields.Of(meshedPod(func(p *corev1.Pod) { p.Spec.SecurityContext = &corev1.PodSecurityContext{SupplementalGroups: groups} })).Groups
		if len(got) != want || (got[0] == capture.AnyGroup) != (want == 1) {
			t.Errorf("%d groups became %d of %d", n, len(got), got[0])
		}
	}
}

// TestWith replaces a pod's labels and annotations by those of its sandbox.
func TestWith(t *testing.T) {
	t.Parallel()
	edited := meshedPod(annotated(traffic+"excludeOutboundPorts", "80"), annotated(mode, "NONE"), labelled(inject, "false"))
	made := meshedPod(annotated(traffic+"excludeOutboundPorts", "443"), labelled("app", "web"))
	before := edited.DeepCopy()
	if got, want := podfields.Of(edited).With(made.Labels, made.Annotations), podfields.Of(made); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if pod := podfields.Of(edited); pod.Annotations[inject] != "false" || !reflect.DeepEqual(edited, before) {
		t.Errorf("Of changed its argument: %+v", edited.Annotations)
	}
}

// TestHasController accepts only a controller that would replace the pod.
func TestHasController(t *testing.T) {
	t.Parallel()
	controller := true
	by := func(kind string, isController *bool) metav1.OwnerReference {
		return metav1.OwnerReference{Kind: kind, Name: "web", Controller: isController}
	}
	for name, tt := range map[string]struct {
		owners []metav1.OwnerReference
		want   bool
	}{
		"no owner":                          {nil, false},
		"a ReplicaSet":                      {[]metav1.OwnerReference{by("ReplicaSet", &controller)}, true},
		"a DaemonSet":                       {[]metav1.OwnerReference{by("DaemonSet", &controller)}, true},
		"a Job":                             {[]metav1.OwnerReference{by("Job", &controller)}, true},
		"a static pod's Node":               {[]metav1.OwnerReference{by("Node", &controller)}, false},
		"an owner that is no controller":    {[]metav1.OwnerReference{by("ReplicaSet", new(bool)), by("ConfigMap", nil)}, false},
		"a controller among others":         {[]metav1.OwnerReference{by("ConfigMap", nil), by("StatefulSet", &controller)}, true},
		"a Node, and another not in charge": {[]metav1.OwnerReference{by("ReplicaSet", nil), by("Node", &controller)}, false},
	} {
		if got := podfields.HasController(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: tt.owners}}); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
