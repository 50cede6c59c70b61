// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

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

// TestReceived sends pods as JSON.
func TestReceived(t *testing.T) {
	t.Parallel()
	inherited := func(c *Container) { c.UID, c.GID = ID{5, true}, ID{6, true} }
	for _, pod := range []Pod{
		{},
		meshedPod(), meshedPod(native), meshedPod(withoutProxy),
		meshedPod(withClass("runc"), withEnv(envDNSCapture, ""), withInit(containerInit, netAdmin, keepsRunning, inherited), annotated(annotationInject, "no")),
	} {
		if got := received(t, pod); !reflect.DeepEqual(got, pod) {
			t.Errorf("received %+v, sent %+v", got, pod)
		}
	}
}

// TestWith replaces a pod's labels and annotations by those of its sandbox.
func TestWith(t *testing.T) {
	t.Parallel()
	edited := meshedPod(annotated(annotationExcludeOutboundPorts, "80"), annotated(annotationInterceptionMode, modeNone), labelled(annotationInject, "false"))
	before := maps.Clone(edited.Annotations)
	labels := map[string]string{annotationInject: "yes", "app": "web"}
	annotations := map[string]string{
		annotationStatus: `{"revision": "default"}`, annotationInject: "false", annotationExcludeOutboundPorts: "443",
		annotationTraffic + "unknown": "x", "example.com/other": "x", strings.TrimSuffix(annotationTraffic, "/"): "x",
	}
	want := edited
	want.Annotations = map[string]string{
		annotationStatus: "", annotationInject: "yes", annotationExcludeOutboundPorts: "443", annotationTraffic + "unknown": "",
	}
	if got := edited.With(labels, annotations); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if !maps.Equal(edited.Annotations, before) || annotations[annotationInject] != "false" {
		t.Errorf("With changed its receiver or its arguments: %v, %v", edited.Annotations, annotations)
	}
	for _, mesh := range config.Meshes() {
		for _, a := range Annotations(mesh) {
			if _, ok := edited.With(nil, map[string]string{a.Key: "x"}).Annotations[a.Key]; !ok {
				t.Errorf("annotation %s is lost", a.Key)
			}
		}
	}
}

// fieldsOf are the fields of each PodVersion, with their types.
var fieldsOf = map[int]string{
	1: `{annotations map[string]string;runtimeClass,omitempty string;containers,omitempty []` +
		`{name string;uid,omitzero {number int64;fromPod,omitempty bool};gid,omitzero {number int64;fromPod,omitempty bool};` +
		`init,omitempty bool;keepsRunning,omitempty bool;netAdmin,omitempty bool;proxyType,omitempty string;env,omitzero map[string]string}}`,
	2: `{annotations map[string]string;runtimeClass,omitempty string;groups,omitempty []int64;containers,omitempty []` +
		`{name string;uid,omitzero {number int64;fromPod,omitempty bool};gid,omitzero {number int64;fromPod,omitempty bool};` +
		`init,omitempty bool;keepsRunning,omitempty bool;netAdmin,omitempty bool;noNewPrivileges,omitempty bool;` +
		`proxyType,omitempty string;env,omitzero map[string]string}}`,
	3: `{annotations map[string]string;runtimeClass,omitempty string;groups,omitempty []int64;containers,omitempty []` +
		`{name string;uid,omitzero {number int64;fromPod,omitempty bool};gid,omitzero {number int64;fromPod,omitempty bool};` +
		`init,omitempty bool;keepsRunning,omitempty bool;netAdmin,omitempty bool;noNetRaw,omitempty bool;noNewPrivileges,omitempty bool;` +
		`proxyType,omitempty string;env,omitzero map[string]string}}`,
}

// TestPodVersion compares the fields of Pod with those of its version.
func TestPodVersion(t *testing.T) {
	t.Parallel()
	if got := fields(reflect.TypeFor[Pod]()); got != fieldsOf[PodVersion] {
		t.Errorf("the fields of Pod are not those of PodVersion %d: raise PodVersion and add its fields to fieldsOf; the older versions stay as they are\ngot  %s\nwant %s",
			PodVersion, got, fieldsOf[PodVersion])
	}
}

// fields returns the JSON names of a type's fields, with their types.
func fields(of reflect.Type) string {
	switch of.Kind() {
	case reflect.Slice:
		return "[]" + fields(of.Elem())
	case reflect.Struct:
		var all []string
		for field := range of.Fields() {
			all = append(all, fmt.Sprintf("%s %s", field.Tag.Get("json"), fields(field.Type)))
		}
		return "{" + strings.Join(all, ";") + "}"
	}
	return of.String()
}
