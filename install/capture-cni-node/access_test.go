// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestRenewedToken renews the token's file, as the kubelet does: within a minute, the agent's
// requests have the new token.
func TestRenewedToken(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	lab.Check(t, os.WriteFile(directory+"/kubeconfig", []byte(`{apiVersion: v1, kind: Config, current-context: c,
		contexts: [{name: c, context: {cluster: c, user: u}}], clusters: [{name: c, cluster: {server: "https://api"}}],
		users: [{name: u, user: {tokenFile: token}}]}`), 0o600))
	lab.Check(t, os.WriteFile(directory+"/token", []byte("first"), 0o600))
	_, access, err := (&options{kubeconfig: directory + "/kubeconfig"}).api()
	lab.Check(t, err)
	synctest.Test(t, func(t *testing.T) {
		var got string
		transport, err := rest.HTTPWrappersForConfig(access, sent(func(r *http.Request) { got = r.Header.Get("Authorization") }))
		lab.Check(t, err)
		for _, token := range []string{"first", "second"} {
			lab.Check(t, os.WriteFile(directory+"/token", []byte(token), 0o600))
			time.Sleep(time.Minute)
			if _, err := transport.RoundTrip(&http.Request{}); err != nil || got != "Bearer "+token {
				t.Errorf("the request has %q, want token %s; %v", got, token, err)
			}
		}
	})
}

type sent func(*http.Request)

func (f sent) RoundTrip(r *http.Request) (*http.Response, error) {
	f(r)
	return &http.Response{}, nil
}
