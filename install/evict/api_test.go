// SPDX-License-Identifier: Apache-2.0

package evict

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
)

// TestEviction reads the pod and sends what the API server expects: an Eviction
// of this pod, and of no other that has its name by then.
func TestEviction(t *testing.T) {
	t.Parallel()
	server, err := kubeapi.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	type request struct{ Method, Path, Token, Body string }
	var got []request
	server.Misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet {
			got = append(got, request{r.Method, r.URL.Path, r.Header.Get("Authorization"), ""})
			return false
		}
		body, err := io.ReadAll(r.Body)
		got = append(got, request{r.Method, r.URL.Path, r.Header.Get("Authorization"), canonical(t, body)})
		answer(w, r, 0)
		return err == nil
	})
	server.Put(fit("web"))
	access := &rest.Config{Host: server.URL, BearerToken: server.Token(), TLSClientConfig: rest.TLSClientConfig{CAData: server.Cert.PEM}}
	look := func(context.Context) error { return nil }
	e, err := New(access, ownNode, look, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if pause := e.evict(t.Context(), pod("web")); pause != every {
		t.Error("the pod was not evicted")
	}
	want := []request{{http.MethodGet, "/api/v1/namespaces/shop/pods/web", "Bearer " + server.Token(), ""}, {http.MethodPost, "/api/v1/namespaces/shop/pods/web/eviction", "Bearer " + server.Token(), canonical(t, []byte(`{
		"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"namespace": "shop", "name": "web"},
		"deleteOptions": {"preconditions": {"uid": "uid-of-web"}}
	}`))}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// canonical is a document with its keys in order and nothing that is null.
func canonical(t *testing.T, document []byte) string {
	t.Helper()
	var value map[string]any
	if err := json.Unmarshal(document, &value); err != nil {
		t.Errorf("%s: %v", document, err)
	}
	if metadata, ok := value["metadata"].(map[string]any); ok && metadata["creationTimestamp"] == nil {
		delete(metadata, "creationTimestamp")
	}
	text, err := json.Marshal(value)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}
