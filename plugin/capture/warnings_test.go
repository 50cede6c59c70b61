// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
)

// TestEarlyContainers expects warnings of init containers that start before the proxy
// and whose traffic is captured.
func TestEarlyContainers(t *testing.T) {
	t.Parallel()
	first := func(names ...string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			for _, name := range names {
				p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: name})
			}
		}
	}
	native := func(p *corev1.Pod) {
		p.Spec.Containers = slices.DeleteFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.Name == containerProxy })
	}
	as := func(uid, gid int64) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.InitContainers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: &uid, RunAsGroup: &gid}
		}
	}
	for _, test := range []struct {
		name    string
		changes []func(*corev1.Pod)
		want    []string
	}{
		{"none", nil, nil},
		{"two", []func(*corev1.Pod){first("fetch", "migrate")}, []string{"fetch", "migrate"}},
		{"Istio's own", []func(*corev1.Pod){first(containerInit, containerValidation)}, nil},
		{"before and after a native sidecar", []func(*corev1.Pod){native, first("fetch", containerProxy, "migrate")}, []string{"fetch"}},
		{"with the proxy's uid", []func(*corev1.Pod){first("fetch"), as(1337, 5)}, nil},
		{"with the proxy's gid", []func(*corev1.Pod){first("fetch"), as(5, 1337)}, nil},
		{"with its own", []func(*corev1.Pod){first("fetch"), as(5, 5)}, []string{"fetch"}},
		{"nothing captured", []func(*corev1.Pod){first("fetch"), annotated(annotationIncludeOutboundRanges, "")}, nil},
		{"only a port captured", []func(*corev1.Pod){
			first("fetch"), annotated(annotationIncludeOutboundRanges, ""), annotated(annotationIncludeOutboundPorts, "80"),
		}, []string{"fetch"}},
	} {
		_, warnings, err := decide(meshedPod(test.changes...), config.DefaultSettings(), only4)
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		var got []string
		for _, w := range warnings {
			if rest, ok := strings.CutPrefix(w, "init container "); ok {
				name, _, _ := strings.Cut(rest, " starts before")
				got = append(got, name)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: warned of %q, want %q", test.name, got, test.want)
		}
	}
}
