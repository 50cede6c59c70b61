// SPDX-License-Identifier: Apache-2.0

package capturetest

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/report"
)

var (
	update = flag.Bool("update", false, "rewrite the golden file")
	chance = regexp.MustCompile(`capture-cni-test-[a-z2-7]{6}|[0-9-]{10}T[0-9:]{8}Z`)
)

// TestObjects compares the pods and Services that a test creates in each mode, on nodes whose
// runtime calls Multus as well, with a golden file.
func TestObjects(t *testing.T) {
	t.Parallel()
	var created []any
	for _, mode := range []Mode{Redirect, TProxy} {
		s := newAPIServer()
		test := newTest(t, s, "{}")
		test.Namespace, test.Modes = "given", []Mode{mode}
		if mode == TProxy {
			test.Fleet.Nodes[2].Mode = report.Multus
		}
		services := map[string]any{}
		test.Progress = func(string, ...any) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for path, object := range s.objects {
				if strings.Contains(path, "/services/") {
					services[path] = object
				}
			}
		}
		_, err := test.Run(t.Context())
		lab.Check(t, err)
		for _, pod := range s.created[:2] {
			pod.Status = corev1.PodStatus{}
			created = append(created, pod)
		}
		for _, service := range services {
			created = append(created, service)
		}
	}
	text, err := json.MarshalIndent(created, "", "  ")
	lab.Check(t, err)
	text = append(chance.ReplaceAll(text, []byte("CHANCE")), '\n')
	const golden = "testdata/objects.json"
	if *update {
		lab.Check(t, os.WriteFile(golden, text, 0o644))
	}
	want, err := os.ReadFile(golden)
	lab.Check(t, err)
	if !bytes.Equal(text, want) {
		t.Error(cmp.Diff(string(want), string(text)))
	}
}
