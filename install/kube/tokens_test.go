// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTokens binds a token to its Node where it can, so that the token ends with the
// Node, and takes a token for rejected only if the API server says so.
func TestTokens(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	client := clientFor(t, server)
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
	rejects := func() bool { return client.RejectsToken(t.Context(), server.URL, authorities, token) }
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
	if client.RejectsToken(t.Context(), server.URL, "/nonexistent", token) || client.RejectsToken(t.Context(), "https://%", authorities, token) {
		t.Error("a request that can't be made rejects a token")
	}
}

// TestUnboundTokens requests an unbound token only if the API server can't bind tokens to
// Nodes, or has no such Node yet, and returns the errors for both requests.
func TestUnboundTokens(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		node, reason, kind string
		existed            bool
		requests           int
	}{
		"bad request":                     {ownNode, "BadRequest", "", false, 2},
		"bad request of an existing Node": {ownNode, "BadRequest", "", true, 2},
		"invalid":                         {ownNode, "Invalid", "", false, 2},
		"unbound is invalid":              {"", "Invalid", "", false, 1},
		"no such Node yet":                {ownNode, "NotFound", "nodes", false, 2},
		"the Node is gone":                {ownNode, "NotFound", "nodes", true, 1},
		"no such service account":         {ownNode, "NotFound", "serviceaccounts", false, 1},
		"not found, without what":         {ownNode, "NotFound", "", false, 1},
		"forbidden":                       {ownNode, "Forbidden", "", false, 1},
		"forbidden, because of the node":  {ownNode, "Forbidden", "nodes", false, 1},
		"no answer, and nothing is tried": {ownNode, "", "", false, 1},
	} {
		for _, accepted := range []bool{true, false} {
			requests := 0
			client := &Client{rest: clientOf(func(*http.Request) (*http.Response, error) {
				requests++
				if requests == 2 && accepted {
					return answerJSON(http.StatusCreated, `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","status":{"token":"unbound"}}`)
				}
				if tt.reason == "" {
					return nil, errors.New("connection refused")
				}
				details := ""
				if tt.kind != "" {
					details = fmt.Sprintf(`"details":{"kind":%q},`, tt.kind)
				}
				return answerJSON(http.StatusForbidden, fmt.Sprintf(`{"apiVersion":"v1","kind":"Status","status":"Failure",%s"reason":%q,"message":"refusal %d"}`, details, tt.reason, requests))
			})}
			token, err := client.RequestToken(t.Context(), TokenSpec{Namespace: "mesh", ServiceAccount: "agent", Node: tt.node, NodeExisted: tt.existed, TTL: time.Hour})
			if requests != tt.requests {
				t.Errorf("%s: %d requests, %v", name, requests, err)
			}
			want := "requesting a token for service account mesh/agent: refusal 1"
			switch {
			case accepted && tt.requests == 2:
				if err != nil || token != "unbound" {
					t.Errorf("%s: %q, %v", name, token, err)
				}
				continue
			case tt.requests == 2:
				want += "; and a token that is bound to no Node: refusal 2"
			case tt.reason == "":
				want = "connection refused"
			}
			if token != "" || err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Errorf("%s: %q, %v, want %s", name, token, err, want)
			}
		}
	}
}
