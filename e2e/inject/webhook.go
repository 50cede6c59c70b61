// SPDX-License-Identifier: Apache-2.0

// Package inject stands in for istiod's sidecar injector: a mutating admission
// webhook that injects pods as Istio does, with images of the caller's choice.
package inject

import (
	"encoding/json"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Options are a mesh operator's settings for injection.
type Options struct {
	ProxyImage string
	ProxyArgs  []string
	ProxyProbe *corev1.Probe // readiness and start-up, nil for none

	// Init injects istio-init, as Istio does without its CNI plugin.
	Init      bool
	InitImage string
}

// Handler answers AdmissionReview requests about pods.
func Handler(opts Options) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(w, fmt.Sprintf("no AdmissionReview: %v", err), http.StatusBadRequest)
			return
		}
		review.Response = opts.respond(review.Request)
		review.Request = nil
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	})
}

func (o Options) respond(request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	response := &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true}
	patch, err := o.patchOf(request.Object.Raw)
	if err != nil {
		response.Allowed = false
		response.Result = &metav1.Status{Message: err.Error()}
		return response
	}
	if patch != nil {
		jsonPatch := admissionv1.PatchTypeJSONPatch
		response.Patch, response.PatchType = patch, &jsonPatch
	}
	return response
}

// operation is an operation of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// patchOf returns nil for a pod that is not injected.
func (o Options) patchOf(raw []byte) ([]byte, error) {
	var pod corev1.Pod
	if err := json.Unmarshal(raw, &pod); err != nil {
		return nil, fmt.Errorf("reading the pod: %w", err)
	}
	if !shouldInject(&pod) {
		return nil, nil
	}
	if err := o.inject(&pod); err != nil {
		return nil, err
	}
	// "add" of an existing member replaces it.
	patch := []operation{
		{"add", "/metadata/annotations", pod.Annotations},
		{"add", "/spec/containers", pod.Spec.Containers},
	}
	if len(pod.Spec.InitContainers) > 0 {
		patch = append(patch, operation{"add", "/spec/initContainers", pod.Spec.InitContainers})
	}
	return json.Marshal(patch)
}
