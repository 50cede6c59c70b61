// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"errors"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

func TestParseIdentity(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args string
		want capture.PodRef
		err  string
	}{
		{args: ""},
		{args: "IgnoreUnknown=1"},
		{args: "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=c;K8S_POD_UID=u", want: capture.PodRef{Namespace: "shop", Name: "web", UID: "u"}},
		{args: "A=1;A=2;K8S_POD_NAME=web;K8S_POD_NAMESPACE=shop;B", want: capture.PodRef{Namespace: "shop", Name: "web"}},
		{args: "K8S_POD_NAME=;K8S_POD_NAMESPACE="},
		{args: "K8S_POD_UID=u", want: capture.PodRef{UID: "u"}},
		{args: "K8S_POD_NAME=web", err: `got "web" and ""`},
		{args: "K8S_POD_NAMESPACE=shop;IgnoreUnknown=1", err: `got "" and "shop"`},
		{args: "K8S_POD_NAME=web;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=other", err: `K8S_POD_NAME is set to both "web" and "other"`},
		{args: "K8S_OTHER=1;K8S_OTHER=2", err: `K8S_OTHER is set to both "1" and "2"`},
		{args: "K8S_POD_NAME=web;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_NAMESPACE=shop", want: capture.PodRef{Namespace: "shop", Name: "web"}},
	} {
		got, err := parseIdentity(test.args)
		if got != test.want {
			t.Errorf("%q: got %+v", test.args, got)
		}
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%q: got error %v, want %q", test.args, err, test.err)
		}
		if err != nil && cniError(err).Code != types.ErrInvalidEnvironmentVariables {
			t.Errorf("%q: code %d", test.args, cniError(err).Code)
		}
	}
}

func FuzzParseIdentity(f *testing.F) {
	f.Add("K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_UID=u;IgnoreUnknown=1")
	f.Add(";;=;K8S_POD_NAME")
	f.Fuzz(func(t *testing.T, args string) {
		pod, err := parseIdentity(args)
		if err == nil && (pod.Name == "") != (pod.Namespace == "") {
			t.Errorf("either name or namespace is empty: %+v", pod)
		}
		if err != nil && pod != (capture.PodRef{}) {
			t.Errorf("got an error and %+v", pod)
		}
	})
}

func TestStaticUID(t *testing.T) {
	t.Parallel()
	for uid, want := range map[string]bool{
		"0123456789abcdef0123456789abcdef": true, "": false, "0123456789abcdef0123456789abcde": false,
		"6c1f8c3e-0b7a-4f0e-9d53-2f1f5a1d9f01": false, "0123456789ABCDEF0123456789ABCDEF": false, "g123456789abcdef0123456789abcdef": false,
	} {
		if isStaticUID(uid) != want {
			t.Errorf("%q", uid)
		}
	}
}

func TestPanicBecomesAnError(t *testing.T) {
	var out, log strings.Builder
	status := respond(func() ([]byte, error) { panic(errors.New("boom")) }, &out, &log)
	if status != 1 || !strings.Contains(out.String(), `"msg": "panic: boom"`) || !strings.Contains(out.String(), `"code": 999`) {
		t.Errorf("status %d, stdout %s", status, out.String())
	}
	if !strings.Contains(log.String(), "TestPanicBecomesAnError") {
		t.Errorf("the log has no stack trace: %s", log.String())
	}
}
