// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"encoding/json"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
)

// received returns a pod after sending it as JSON.
func received(t *testing.T, pod Pod) (got Pod) {
	t.Helper()
	sent, err := json.Marshal(pod)
	if err == nil {
		err = json.Unmarshal(sent, &got)
	}
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// everyFieldPod returns a pod with all fields that decide, and others.
func everyFieldPod() *corev1.Pod {
	pod := meshedPod(
		annotated(annotationTraffic+"unknown", "u"), annotated(annotationInject, "true"), annotated("example.com/other", "o"),
		annotated(annotationExcludeOutboundPorts, "80, 81"), labelled(annotationInject, "yes"),
		withEnv(envDNSCapture, "true"), withEnv(envDualStack, "false"), withEnv(envDualStack, "1"), withEnv("OTHER", "o"),
		withInit(containerInit, capabilities("NET_ADMIN")), withInit(containerValidation, nil))
	pod.Spec.RuntimeClassName = new("runc")
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(5)), RunAsGroup: new(int64(6))}
	pod.Spec.InitContainers[1].RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: new(int64(7))}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: envDropInvalid, Value: "true"}}
	return pod
}

// TestPodJSON keeps the JSON form stable: another version of the project reads it.
func TestPodJSON(t *testing.T) {
	t.Parallel()
	const want = `{"annotations":{"sidecar.istio.io/inject":"yes","sidecar.istio.io/status":"","traffic.sidecar.istio.io/excludeOutboundPorts":"80, 81","traffic.sidecar.istio.io/unknown":""},` +
		`"runtimeClass":"runc",` +
		`"containers":[{"name":"istio-init","uid":{"number":5,"fromPod":true},"gid":{"number":6,"fromPod":true},"init":true,"netAdmin":true},` +
		`{"name":"istio-validation","uid":{"number":5,"fromPod":true},"gid":{"number":6,"fromPod":true},"init":true,"keepsRunning":true},` +
		`{"name":"app","uid":{"number":7},"gid":{"number":6,"fromPod":true}},` +
		`{"name":"istio-proxy","uid":{"number":5,"fromPod":true},"gid":{"number":6,"fromPod":true},"proxyType":"sidecar","env":{"ISTIO_DUAL_STACK":"1","ISTIO_META_DNS_CAPTURE":"true"}}]}`
	got, err := json.Marshal(PodOf(everyFieldPod()))
	if err != nil || string(got) != want {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
	for _, pod := range []Pod{PodOf(everyFieldPod()), PodOf(meshedPod()), PodOf(meshedPod(native)), PodOf(&corev1.Pod{})} {
		if got := received(t, pod); !reflect.DeepEqual(got, pod) {
			t.Errorf("received %+v, sent %+v", got, pod)
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
		"inject label":  labelled(annotationInject, "false"),
		"unknown key":   annotated(annotationTraffic+"other", ""),
		"runtime class": func(p *corev1.Pod) { p.Spec.RuntimeClassName = new("kata") },
		"proxy type":    withArgs("proxy", "router"),
		"valueFrom": func(p *corev1.Pod) {
			p.Spec.Containers[1].Env = []corev1.EnvVar{{Name: envDropInvalid, ValueFrom: &corev1.EnvVarSource{}}}
		},
		"pod's uid": func(p *corev1.Pod) { p.Spec.SecurityContext.RunAsUser = new(int64(1)) },
		"pod's gid": func(p *corev1.Pod) { p.Spec.SecurityContext.RunAsGroup = new(int64(1)) },
		"uid":       app(func(c *corev1.Container) { c.SecurityContext.RunAsUser = new(int64(1)) }),
		"gid":       app(func(c *corev1.Container) { c.SecurityContext.RunAsGroup = new(int64(1)) }),
		"the pod's uid as its own": app(func(c *corev1.Container) {
			c.SecurityContext.RunAsGroup = new(int64(6))
		}),
		"privileged":     app(func(c *corev1.Container) { c.SecurityContext.Privileged = new(true) }),
		"capabilities":   app(func(c *corev1.Container) { c.SecurityContext.Capabilities = capabilities("ALL").Capabilities }),
		"name":           app(func(c *corev1.Container) { c.Name = "other" }),
		"restart policy": app(func(c *corev1.Container) { c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways) }),
		"one more":       withInit("setup", nil),
		"native sidecar": native,
	}
	for _, a := range Annotations() {
		deciding["annotation "+a.Key] = func(p *corev1.Pod) {
			if a.Key == annotationInject {
				delete(p.Labels, a.Key) // it overrides the annotation
			}
			if _, ok := p.Annotations[a.Key]; ok {
				delete(p.Annotations, a.Key)
			} else {
				p.Annotations[a.Key] = ""
			}
		}
	}
	for _, name := range []string{envDisableProxy, envDNSCapture, envDualStack, envDropInvalid} {
		deciding["variable "+name] = withEnv(name, "0")
	}
	other := map[string]func(*corev1.Pod){
		"status":             annotated(annotationStatus, `{"revision": "default"}`),
		"unknown key's text": annotated(annotationTraffic+"unknown", "x"),
		"overridden":         annotated(annotationInject, "false"),
		"annotation":         annotated("example.com/other", "x"),
		"annotation's case":  annotated("traffic.sidecar.istio.io", "x"),
		"label":              func(p *corev1.Pod) { p.Labels["app"] = "web" },
		"variable":           withEnv("OTHER", "x"),
		"the app's variable": app(func(c *corev1.Container) { c.Env = append(c.Env, corev1.EnvVar{Name: envDNSCapture, Value: "true"}) }),
		"the app's args":     app(func(c *corev1.Container) { c.Args = []string{"proxy", "router"} }),
		"more args":          withArgs("proxy", "sidecar", "--x"),
		"image":              app(func(c *corev1.Container) { c.Image = "x" }),
		"capability":         app(func(c *corev1.Container) { c.SecurityContext.Capabilities = capabilities("NET_RAW").Capabilities }),
		"node":               func(p *corev1.Pod) { p.Spec.NodeName = "x" },
		"status of the pod":  func(p *corev1.Pod) { p.Status.PodIP = "10.0.0.1" },
	}
	base := PodOf(everyFieldPod())
	for same, changes := range map[bool]map[string]func(*corev1.Pod){false: deciding, true: other} {
		for name, change := range changes {
			pod := everyFieldPod()
			change(pod)
			if got := PodOf(pod); reflect.DeepEqual(got, base) != same {
				t.Errorf("%s: unchanged is %v, want %v: %+v", name, !same, same, got)
			}
		}
	}
}

// TestPodIsSmall expects a small Pod of a Kubernetes pod with large values.
func TestPodIsSmall(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	pod := PodOf(meshedPod(
		withEnv(envDropInvalid, long), withEnv("OTHER", long), withArgs("proxy", long, long),
		annotated(annotationStatus, long), annotated(annotationTraffic+"unknown", long), annotated("example.com/other", long)))
	if sent, err := json.Marshal(pod); err != nil || len(sent) > 1<<10 {
		t.Errorf("%d bytes, %v", len(sent), err)
	}
}

// TestWith replaces a pod's labels and annotations by those of its sandbox.
func TestWith(t *testing.T) {
	t.Parallel()
	edited := meshedPod(annotated(annotationExcludeOutboundPorts, "80"), annotated(annotationInterceptionMode, modeNone), labelled(annotationInject, "false"))
	made := meshedPod(annotated(annotationExcludeOutboundPorts, "443"), labelled("app", "web"))
	if got, want := PodOf(edited).With(made.Labels, made.Annotations), PodOf(made); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if pod := PodOf(edited); pod.Annotations[annotationInject] != "false" || edited.Annotations[annotationInject] != "" {
		t.Errorf("PodOf changed its argument: %+v", edited.Annotations)
	}
}

// TestUnreadableAddresses expects the error of addresses before any other.
func TestUnreadableAddresses(t *testing.T) {
	t.Parallel()
	gone := errors.New("gone")
	decision, err := Decide(PodOf(meshedPod(annotated(annotationInterceptionMode, "?"))), config.DefaultSettings(),
		func() ([]netip.Addr, error) { return nil, gone })
	if !errors.Is(err, gone) || !reflect.DeepEqual(decision, Decision{}) {
		t.Errorf("got %+v, %v", decision, err)
	}
}
