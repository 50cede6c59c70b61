// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/plugin/record"
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
		w.WriteHeader(http.StatusCreated)
		return err == nil
	})
	ref := record.PodRef{Namespace: "shop", Name: "web", UID: "uid-of-web"}
	server.Put(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, UID: types.UID(ref.UID)}})
	client, err := New(&rest.Config{Host: server.URL, BearerToken: server.Token(), TLSClientConfig: rest.TLSClientConfig{CAData: server.Cert.PEM}})
	if err != nil {
		t.Fatal(err)
	}
	if pod, err := client.Pod(t.Context(), ref); err != nil || string(pod.UID) != ref.UID {
		t.Errorf("read %v, %v", pod, err)
	}
	if err := client.Evict(t.Context(), ref); err != nil {
		t.Error(err)
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
