// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
)

// TestTokens binds a token to its Node where it can, so that the token ends with the
// Node, and takes a token for rejected only if the API server says so.
func TestTokens(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	client, err := New(&rest.Config{Host: server.URL, BearerToken: server.Token(), TLSClientConfig: rest.TLSClientConfig{CAData: server.Cert.PEM}})
	if err != nil {
		t.Fatal(err)
	}
	spec := TokenSpec{Namespace: "capture-cni", ServiceAccount: "capture-cni", Node: ownNode, TTL: time.Hour}
	token, err := client.RequestToken(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	requested := server.TokenRequests()
	if bound := requested[0].BoundObjectRef; len(requested) != 1 || bound == nil || bound.Kind != "Node" || bound.Name != ownNode || *requested[0].ExpirationSeconds != 3600 {
		t.Errorf("requested %+v", requested)
	}
	authorities := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(authorities, server.Cert.PEM, 0o600); err != nil {
		t.Fatal(err)
	}
	rejects := func() bool { return RejectsToken(t.Context(), server.URL, authorities, token) }
	if rejects() {
		t.Error("a token that was just issued is rejected")
	}
	server.ChangeKeys()
	if !rejects() {
		t.Error("a token of other keys is taken")
	}
	for code := http.StatusOK; code < 600; code++ { // no other answer says that the token is invalid
		if code == http.StatusUnauthorized || code >= 300 && code < 400 {
			continue
		}
		server.Misbehave(func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(code); return true })
		if rejects() {
			t.Errorf("status %d rejects a token", code)
		}
	}
	server.Misbehave(nil)
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if rejects() {
		t.Error("no answer rejects a token")
	}
}

// TestRefusedToken tells both refusals: of the token that is bound to the Node, and of the
// one that is not.
func TestRefusedToken(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	client, err := New(&rest.Config{Host: server.URL, BearerToken: server.Token(), TLSClientConfig: rest.TLSClientConfig{CAData: server.Cert.PEM}})
	if err != nil {
		t.Fatal(err)
	}
	requests := 0
	server.Misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		requests++
		if requests == 1 {
			kubeapi.WriteStatus(w, r, http.StatusBadRequest, metav1.StatusReasonBadRequest, "tokens are bound to no Node here")
		} else {
			kubeapi.WriteStatus(w, r, http.StatusForbidden, metav1.StatusReasonForbidden, "a policy refuses it")
		}
		return true
	})
	_, err = client.RequestToken(t.Context(), TokenSpec{Namespace: "capture-cni", ServiceAccount: "capture-cni", Node: ownNode, TTL: time.Hour})
	if err == nil || !strings.Contains(err.Error(), "tokens are bound to no Node here") || !strings.Contains(err.Error(), "a policy refuses it") || requests != 2 {
		t.Errorf("after %d requests: %v", requests, err)
	}
}
