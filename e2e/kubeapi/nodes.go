// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PutNode adds or replaces a node with taints.
func (s *Server) PutNode(name string, taints ...corev1.Taint) {
	node := &corev1.Node{
		TypeMeta:   metav1.TypeMeta{Kind: "Node", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name)},
		Spec:       corev1.NodeSpec{Taints: taints},
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[name] = node
	delete(s.deletedNodes, name)
}

// DeleteNode removes a node, and revokes the tokens that are bound to it. None is issued
// for it from then on.
func (s *Server) DeleteNode(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, name)
	s.deletedNodes[name] = true
	s.issuer.revoke(name)
}

// Taints returns a node's taints.
func (s *Server) Taints(name string) []corev1.Taint {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[name].Spec.Taints
}

// Events returns the Events that were posted.
func (s *Server) Events() []corev1.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]corev1.Event{}, s.events...)
}

// serveNode answers GET and JSON patches of /api/v1/nodes/NAME.
func (s *Server) serveNode(w http.ResponseWriter, r *http.Request, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	node := s.nodes[name]
	if node == nil {
		WriteStatus(w, r, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("nodes %q not found", name))
		return
	}
	if r.Method == http.MethodPatch {
		changed, err := applyPatch(node, r)
		if err != nil {
			WriteStatus(w, r, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, err.Error())
			return
		}
		s.nodes[name], node = changed, changed
	}
	write(w, r, http.StatusOK, node.DeepCopy())
}

// applyPatch supports the two operations that the removal of a taint takes: a
// test of the key at an index, and the removal of the index.
func applyPatch(node *corev1.Node, r *http.Request) (*corev1.Node, error) {
	if got := r.Header.Get("Content-Type"); got != string(types.JSONPatchType) {
		return nil, fmt.Errorf("the patch has the type %s, expected %s", got, types.JSONPatchType)
	}
	var patch []struct{ Op, Path, Value string }
	if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
		return nil, err
	}
	changed := node.DeepCopy()
	for _, o := range patch {
		index, field, _ := strings.Cut(strings.TrimPrefix(o.Path, "/spec/taints/"), "/")
		taints := changed.Spec.Taints
		i, err := strconv.Atoi(index)
		switch {
		case err != nil || i < 0 || i >= len(taints):
			return nil, fmt.Errorf("no taint at %s", o.Path)
		case o.Op == "test" && field == "key" && taints[i].Key == o.Value:
		case o.Op == "remove" && field == "":
			changed.Spec.Taints = slices.Delete(taints, i, i+1)
		default:
			return nil, fmt.Errorf("%s at %s failed", o.Op, o.Path)
		}
	}
	return changed, nil
}

// serveEvent answers POST …/events.
func (s *Server) serveEvent(w http.ResponseWriter, r *http.Request) {
	var event corev1.Event
	if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
		WriteStatus(w, r, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	s.mu.Lock()
	s.events = append(s.events, event)
	s.mu.Unlock()
	write(w, r, http.StatusCreated, &event)
}
