// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
)

const (
	staticUID = "0123456789abcdef0123456789abcdef"
	apiUID    = "6c1f8c3e-0b7a-4f0e-9d53-2f1f5a1d9f01"
)

// entryWith returns stdin with the annotations that the runtime passes; nil for none.
func entryWith(t *testing.T, annotations any, more string) []byte {
	t.Helper()
	encoded, err := json.Marshal(annotations)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Appendf(nil, `{"excludeNamespaces": ["kube-system"], %s "runtimeConfig": {"io.kubernetes.cri.pod-annotations": %s}}`, more, encoded)
}

// TestPassReason distinguishes pods that need no API lookup from those that do.
func TestPassReason(t *testing.T) {
	t.Parallel()
	const source, status = "kubernetes.io/config.source", "sidecar.istio.io/status"
	for _, test := range []struct {
		name, namespace, uid string
		annotations          any
		want, log            string
	}{
		{name: "annotations not passed", uid: apiUID},
		{name: "no annotations, no UID"},
		{name: "static by UID", uid: staticUID, want: "static pod"},
		{name: "not injected", uid: apiUID, annotations: map[string]string{source: "api"}, want: "not injected"},
		{name: "injected", uid: apiUID, annotations: map[string]string{source: "api", status: ""}},
		{name: "without the kubelet's annotation", uid: apiUID, annotations: map[string]string{"a": "b"}},
		{name: "with an empty source", uid: apiUID, annotations: map[string]string{source: ""}},
		{name: "passed, but empty", uid: apiUID, annotations: map[string]string{}},
		{name: "without the kubelet's annotation, but static by UID", uid: staticUID, annotations: map[string]string{"a": "b"}, want: "static pod"},
		{name: "from a file", annotations: map[string]string{source: "file", status: "{}"}, want: "static pod"},
		{name: "from a URL", annotations: map[string]string{source: "http"}, want: "static pod"},
		{name: "source api, with a static pod's UID", uid: staticUID, annotations: map[string]string{source: "api", status: "{}"}},
		{name: "annotations of the wrong type", uid: apiUID, annotations: []string{source}},
		{name: "a value of the wrong type", uid: apiUID, annotations: map[string]any{source: "api", "a": 1}},
		{name: "excluded", namespace: "kube-system", uid: apiUID, want: "the namespace is excluded"},
		{name: "excluded, not injected", namespace: "kube-system", annotations: map[string]string{source: "api"}, want: "the namespace is excluded"},
		{name: "excluded, injected", namespace: "kube-system", annotations: map[string]string{source: "api", status: ""}, want: "exempt_namespace_excluded", log: "runs uncaptured"},
		{
			name: "excluded, injected, without the kubelet's annotation", namespace: "kube-system", annotations: map[string]string{status: ""},
			want: "the namespace is excluded",
		},
		{name: "almost excluded", namespace: "kube-system-2", uid: apiUID},
	} {
		for _, fault := range []string{"", `"kubeconfig": 5, "mesh": [], "status": {}, "logLevel": 0,`} {
			namespace := test.namespace
			if namespace == "" {
				namespace = "shop"
			}
			var log strings.Builder
			r, err := realPlugin.newRequest(&skel.CmdArgs{
				Args:      "K8S_POD_NAME=web;K8S_POD_NAMESPACE=" + namespace + ";K8S_POD_UID=" + test.uid,
				StdinData: entryWith(t, test.annotations, fault),
			}, &log)
			if err != nil {
				t.Fatalf("%s: %v", test.name, err)
			}
			if got := string(r.passReason()); got != test.want {
				t.Errorf("%s: got %q, want %q", test.name, got, test.want)
			}
			if (log.String() == "") != (test.log == "") || !strings.Contains(log.String(), test.log) {
				t.Errorf("%s: log %q, want %q", test.name, log.String(), test.log)
			}
		}
	}
}

// TestBadRequests expects an error from newRequest, with its code.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		stdin, args string
		code        uint
	}{
		{"", "", types.ErrDecodingFailure},
		{"null", "", types.ErrDecodingFailure},
		{"{", "K8S_POD_NAME=web", types.ErrDecodingFailure},
		{"{}", "K8S_POD_NAME=web", types.ErrInvalidEnvironmentVariables},
		{"{}", "K8S_POD_UID=a;K8S_POD_UID=b", types.ErrInvalidEnvironmentVariables},
	} {
		_, err := realPlugin.newRequest(&skel.CmdArgs{StdinData: []byte(test.stdin), Args: test.args}, &strings.Builder{})
		if err == nil || cniError(err).Code != test.code {
			t.Errorf("%q, %q: got %v, want code %d", test.stdin, test.args, err, test.code)
		}
	}
}

// TestPodsOutsideTheMesh runs ADD and CHECK with an entry whose every key is invalid:
// they succeed, and ADD returns prevResult.
func TestPodsOutsideTheMesh(t *testing.T) {
	t.Parallel()
	const previous = `{"cniVersion": "1.1.0",  "ips": [ ], "x": 1e400}`
	args := &skel.CmdArgs{StdinData: []byte(`{"cniVersion":"1.1.0","name":"n","kubeconfig":5,"mesh":5,"prevResult":` + previous + `}`)}
	var log strings.Builder
	got, err := realPlugin.Add(args, &log)
	if err != nil || string(got) != previous+"\n" {
		t.Errorf("ADD: got %s, %v", got, err)
	}
	if err := check(args, &log); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	if log.String() != "" {
		t.Errorf("log %q", log.String())
	}
}

// TestEmptyResult runs ADD as the first plugin of a chain: the result has the version
// that the runtime asked for.
func TestEmptyResult(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		got, err := realPlugin.Add(&skel.CmdArgs{StdinData: []byte(`{"cniVersion":"` + version + `"}`)}, &strings.Builder{})
		var result types.NetConf
		if err != nil || json.Unmarshal(got, &result) != nil || result.CNIVersion != version {
			t.Errorf("%s: got %s, %v", version, got, err)
		}
	}
	_, err := realPlugin.Add(&skel.CmdArgs{StdinData: []byte(`{"cniVersion":"9.0.0"}`)}, &strings.Builder{})
	if !says(err, "converting an empty result: ") {
		t.Errorf("of a version that is not known: %v", err)
	}
}
