// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// issuer issues tokens that the Server accepts until they expire, or until its
// keys are changed.
type issuer struct {
	ttl       time.Duration // of every token; 0 for the requested one
	ahead     time.Duration // its clock, of that of this machine
	unbound   bool          // refuses tokens that are bound to a Node
	serial    int
	until     map[string]time.Time
	boundTo   map[string]string // the Node of each token
	requested []authentication.TokenRequestSpec
}

// IssueTokens sets the lifetime of every new token, whatever a request asks for.
func (s *Server) IssueTokens(ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.issuer.ttl = ttl
}

// SetClock makes the clock of the issuer go ahead of this machine's, or behind it.
func (s *Server) SetClock(ahead time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.issuer.ahead = ahead
}

// RefuseNodeBinding makes the Server behave as Kubernetes before 1.31.
func (s *Server) RefuseNodeBinding() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.issuer.unbound = true
}

// ChangeKeys invalidates all tokens that were issued so far.
func (s *Server) ChangeKeys() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.issuer.until)
}

// TokenRequests returns the requests that were answered with a token.
func (s *Server) TokenRequests() []authentication.TokenRequestSpec {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]authentication.TokenRequestSpec{}, s.issuer.requested...)
}

// accepts reports whether a request has a valid token.
func (s *Server) accepts(r *http.Request) bool {
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return s.Accepts(token)
}

// Accepts reports whether a token is valid.
func (s *Server) Accepts(token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return token == s.token || time.Now().Before(s.issuer.until[token])
}

// serveToken answers POST …/serviceaccounts/NAME/token.
func (s *Server) serveToken(w http.ResponseWriter, r *http.Request) {
	var request authentication.TokenRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		WriteStatus(w, r, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if request.Spec.BoundObjectRef != nil && s.issuer.unbound {
		WriteStatus(w, r, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "cannot bind token for serviceaccount to object of type Node")
		return
	}
	if bound := request.Spec.BoundObjectRef; bound != nil && s.deletedNodes[bound.Name] {
		missing := apierrors.NewNotFound(corev1.Resource("nodes"), bound.Name).Status()
		write(w, r, http.StatusNotFound, &missing)
		return
	}
	request.Status.Token = s.issuer.issue(request.Spec)
	request.Kind, request.APIVersion = "TokenRequest", authentication.SchemeGroupVersion.String()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(request)
}

// revoke invalidates the tokens that are bound to a Node.
func (i *issuer) revoke(node string) {
	for token, bound := range i.boundTo {
		if bound == node {
			delete(i.until, token)
		}
	}
}

func (i *issuer) issue(spec authentication.TokenRequestSpec) string {
	ttl := i.ttl
	if ttl == 0 {
		ttl = time.Duration(*spec.ExpirationSeconds) * time.Second
	}
	now := time.Now()
	i.serial++
	issued := now.Add(i.ahead)
	encode := base64.RawURLEncoding.EncodeToString
	var node string
	if spec.BoundObjectRef != nil {
		node = spec.BoundObjectRef.Name
	}
	claims := fmt.Sprintf(`{"iat":%d,"exp":%d,"serial":%d,"kubernetes.io":{"node":{"name":%q}}}`, issued.Unix(), issued.Add(ttl).Unix(), i.serial, node)
	token := strings.Join([]string{encode([]byte(`{"alg":"none"}`)), encode([]byte(claims)), encode([]byte("signature"))}, ".")
	if i.until == nil {
		i.until, i.boundTo = map[string]time.Time{}, map[string]string{}
	}
	i.until[token], i.boundTo[token] = now.Add(ttl), node
	i.requested = append(i.requested, spec)
	return token
}
