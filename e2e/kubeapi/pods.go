// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// Kind is a kind of request.
type Kind string

// The kinds of requests that a Server counts.
const (
	GetPod     Kind = "get"
	ListPods   Kind = "list"
	WatchPods  Kind = "watch"  // from a resource version
	StreamPods Kind = "stream" // a streaming list, which is a watch
	OtherKind  Kind = "other"
)

func kindOf(r *http.Request) Kind {
	query := r.URL.Query()
	switch {
	case r.Method != http.MethodGet:
		return OtherKind
	case r.URL.Path == podsPath && query.Get("sendInitialEvents") == "true":
		return StreamPods
	case r.URL.Path == podsPath && query.Get("watch") == "true":
		return WatchPods
	case r.URL.Path == podsPath:
		return ListPods
	case strings.Contains(r.URL.Path, "/pods/"):
		return GetPod
	}
	return OtherKind
}

// podsPath is that of the pods of all namespaces.
const podsPath = "/api/v1/pods"

// changes are all changes of pods so far.
type changes struct {
	version int64 // of the last change
	oldest  int64 // no watch can begin before it
	all     []change
	wake    chan struct{} // closed when the watches have something to do
	counts  map[Kind]int

	breaks, ends int // how often watches were broken, and ended

	refuseStreams bool
}

// change is one of a pod, or a bookmark, which has no pod.
type change struct {
	version       int64
	before, after *corev1.Pod // nil for none
}

func newChanges() changes {
	return changes{version: 1, oldest: 1, wake: make(chan struct{}), counts: map[Kind]int{}}
}

func (c *changes) add(before, after *corev1.Pod) {
	c.all = append(c.all, change{c.version, before, after})
	c.wakeWatches()
}

func (c *changes) wakeWatches() {
	close(c.wake)
	c.wake = make(chan struct{})
}

// Put adds or replaces a pod.
func (s *Server) Put(pod *corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := pod.Namespace + "/" + pod.Name
	stored := pod.DeepCopy()
	s.changes.version++
	stored.ResourceVersion = strconv.FormatInt(s.changes.version, 10)
	s.changes.add(s.pods[key], stored)
	s.pods[key] = stored
}

// Delete removes a pod.
func (s *Server) Delete(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := namespace + "/" + name
	if s.pods[key] == nil {
		return
	}
	s.changes.version++
	s.changes.add(s.pods[key], nil)
	delete(s.pods, key)
}

// Bookmark sends the current resource version to all watches that take bookmarks.
func (s *Server) Bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes.add(nil, nil)
}

// Expire makes the Server forget all resource versions so far: no watch can begin at
// one of them.
func (s *Server) Expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes.version++
	s.changes.oldest = s.changes.version
}

// EndWatches ends all watches, as after their time, once they have sent all changes.
func (s *Server) EndWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes.ends++
	s.changes.wakeWatches()
}

// BreakWatches closes the connections of all watches.
func (s *Server) BreakWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes.breaks++
	s.changes.wakeWatches()
}

// RefuseStreamingLists makes the Server behave as Kubernetes before 1.32.
func (s *Server) RefuseStreamingLists() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes.refuseStreams = true
}

// RequestsOf returns how many requests of a kind came in.
func (s *Server) RequestsOf(kind Kind) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changes.counts[kind]
}

// servePods answers a list or watch of pods in all namespaces.
func (s *Server) servePods(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	selector, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		WriteStatus(w, r, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	selected := func(pod *corev1.Pod) bool {
		return pod != nil && selector.Matches(fields.Set{"spec.nodeName": pod.Spec.NodeName})
	}
	if query.Get("watch") == "true" {
		s.watchPods(w, r, selected)
		return
	}
	s.mu.Lock()
	list := corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(s.changes.version, 10)}}
	pods := s.selected(selected)
	if limit, _ := strconv.Atoi(query.Get("limit")); limit > 0 && query.Get("resourceVersion") != "0" { // at 0, the API server answers from memory, and as a whole
		first, _ := strconv.Atoi(query.Get("continue"))
		end := min(first+limit, len(pods))
		if end < len(pods) {
			list.Continue = strconv.Itoa(end)
		}
		pods = pods[first:end]
	}
	for _, pod := range pods {
		list.Items = append(list.Items, *pod.DeepCopy())
	}
	s.mu.Unlock()
	write(w, r, http.StatusOK, &list)
}

// selected returns pods in the order of their names.
func (s *Server) selected(selected func(*corev1.Pod) bool) (pods []*corev1.Pod) {
	for _, key := range slices.Sorted(maps.Keys(s.pods)) {
		if selected(s.pods[key]) {
			pods = append(pods, s.pods[key])
		}
	}
	return pods
}

// servePod answers GET of one pod.
func (s *Server) servePod(w http.ResponseWriter, r *http.Request, namespace, name string) {
	s.mu.Lock()
	pod := s.pods[namespace+"/"+name]
	s.mu.Unlock()
	if pod == nil {
		WriteStatus(w, r, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("pods %q not found", name))
		return
	}
	write(w, r, http.StatusOK, pod.DeepCopy()) // encoding sets the object's kind
}
