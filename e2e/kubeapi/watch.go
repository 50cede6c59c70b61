// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// connection is the key of a request's connection in its context.
type connection struct{}

// watchPods streams changes until the client ends the watch, its time is over, or a
// test breaks it.
func (s *Server) watchPods(w http.ResponseWriter, r *http.Request, selected func(*corev1.Pod) bool) {
	query := r.URL.Query()
	initial, bookmarks := query.Get("sendInitialEvents") == "true", query.Get("allowWatchBookmarks") == "true"
	s.mu.Lock()
	refused, breaks, ends := initial && s.changes.refuseStreams, s.changes.breaks, s.changes.ends
	s.mu.Unlock()
	if refused {
		WriteStatus(w, r, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid,
			"sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled")
		return
	}
	stream := newEventStream(w, r)
	next, err := s.beginWatch(stream, query.Get("resourceVersion"), initial, selected)
	var timeout <-chan time.Time
	if seconds, parseErr := strconv.Atoi(query.Get("timeoutSeconds")); parseErr == nil {
		timeout = time.After(time.Duration(seconds) * time.Second)
	}
	for next >= 0 && err == nil {
		s.mu.Lock()
		pending, wake, broken, ended := s.changes.all[next:], s.changes.wake, s.changes.breaks != breaks, s.changes.ends != ends
		s.mu.Unlock()
		for _, c := range pending {
			if err == nil && (c.before != nil || c.after != nil || bookmarks) {
				err = stream.sendChange(c, selected)
			}
		}
		next += len(pending)
		switch {
		case broken:
			_ = r.Context().Value(connection{}).(net.Conn).Close()
			return
		case ended:
			return
		}
		select {
		case <-wake:
		case <-timeout:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// beginWatch sends the pods at the beginning of a watch, and returns the index of the
// next change. It returns -1 after an error that ends the watch.
func (s *Server) beginWatch(stream *eventStream, version string, initial bool, selected func(*corev1.Pod) bool) (int, error) {
	from, _ := strconv.ParseInt(version, 10, 64) // 0 for the latest, as without a version
	s.mu.Lock()
	current, oldest, next, pods := s.changes.version, s.changes.oldest, len(s.changes.all), s.selected(selected)
	for !initial && from > 0 && next > 0 && s.changes.all[next-1].version > from {
		next--
	}
	s.mu.Unlock()
	if !initial && from > 0 {
		if from < oldest {
			return -1, stream.send(watch.Error, &metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired, Message: "too old resource version: " + version,
			})
		}
		return next, nil
	}
	for _, pod := range pods {
		if err := stream.send(watch.Added, pod.DeepCopy()); err != nil {
			return -1, err
		}
	}
	if !initial {
		return next, nil
	}
	end := bookmarkAt(current)
	end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	return next, stream.send(watch.Bookmark, end)
}

func bookmarkAt(version int64) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.FormatInt(version, 10)}}
}

// eventStream is the body of a watch's response.
type eventStream struct {
	flush          func()
	frames         io.Writer
	events, object runtime.Encoder
}

func newEventStream(w http.ResponseWriter, r *http.Request) *eventStream {
	codecs := newCodecs()
	mediaType := mediaTypeFor(r)
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
	w.Header().Set("Content-Type", mediaType+";stream=watch")
	w.WriteHeader(http.StatusOK)
	stream := &eventStream{
		flush:  w.(http.Flusher).Flush,
		frames: info.StreamSerializer.Framer.NewFrameWriter(w),
		events: codecs.EncoderForVersion(info.StreamSerializer.Serializer, corev1.SchemeGroupVersion),
		object: codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion),
	}
	stream.flush()
	return stream
}

// sendChange sends what a change is to those who selected pods.
func (e *eventStream) sendChange(c change, selected func(*corev1.Pod) bool) error {
	switch before, after := selected(c.before), selected(c.after); {
	case c.before == nil && c.after == nil:
		return e.send(watch.Bookmark, bookmarkAt(c.version))
	case before && after:
		return e.send(watch.Modified, c.after.DeepCopy())
	case after:
		return e.send(watch.Added, c.after.DeepCopy())
	case before:
		gone := c.before.DeepCopy()
		gone.ResourceVersion = strconv.FormatInt(c.version, 10)
		return e.send(watch.Deleted, gone)
	}
	return nil
}

func (e *eventStream) send(kind watch.EventType, object runtime.Object) error {
	raw, err := runtime.Encode(e.object, object)
	if err == nil {
		err = e.events.Encode(&metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: raw}}, e.frames)
	}
	e.flush()
	return err
}
