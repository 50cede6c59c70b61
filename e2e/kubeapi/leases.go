// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	coordination "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// leasesPath is followed by a namespace.
const leasesPath = "/apis/coordination.k8s.io/v1/namespaces/"

// Lease returns a Lease, nil if there is none.
func (s *Server) Lease(namespace, name string) *coordination.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases[namespace+"/"+name].DeepCopy()
}

// PutLease adds or replaces a Lease.
func (s *Server) PutLease(lease *coordination.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store(lease.DeepCopy())
}

// store gives a Lease a new resource version.
func (s *Server) store(lease *coordination.Lease) *coordination.Lease {
	s.leaseVersion++
	lease.TypeMeta = metav1.TypeMeta{Kind: "Lease", APIVersion: coordination.SchemeGroupVersion.String()}
	lease.ResourceVersion = strconv.Itoa(s.leaseVersion)
	s.leases[lease.Namespace+"/"+lease.Name] = lease
	return lease
}

// serveLease answers GET, POST and PUT of one Lease.
func (s *Server) serveLease(w http.ResponseWriter, r *http.Request) {
	namespace, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, leasesPath), "/leases")
	name = strings.TrimPrefix(name, "/")
	body := &coordination.Lease{}
	if r.Method != http.MethodGet {
		if err := json.NewDecoder(r.Body).Decode(body); err != nil || body.Kind != "Lease" {
			WriteStatus(w, r, http.StatusBadRequest, metav1.StatusReasonBadRequest, fmt.Sprintf("kind %q, %v", body.Kind, err))
			return
		}
		if r.Method == http.MethodPost {
			name = body.Name
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	stored := s.leases[namespace+"/"+name]
	switch {
	case r.Method == http.MethodPost && stored != nil:
		WriteStatus(w, r, http.StatusConflict, metav1.StatusReasonAlreadyExists, fmt.Sprintf("leases %q already exists", name))
		return
	case r.Method == http.MethodPost:
		stored = s.store(body)
	case stored == nil:
		WriteStatus(w, r, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("leases %q not found", name))
		return
	case r.Method == http.MethodPut && body.ResourceVersion != stored.ResourceVersion:
		WriteStatus(w, r, http.StatusConflict, metav1.StatusReasonConflict, "the object has been modified")
		return
	case r.Method == http.MethodPut:
		stored = s.store(body)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(stored)
}
