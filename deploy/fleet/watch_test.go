// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// watchServer is an apiServer whose watches send no events. It does not support lists as a stream of
// initial events.
type watchServer struct {
	*apiServer
	lists chan string // the path and the query of each list
}

func (s watchServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch query := r.URL.Query(); {
	case query.Get("sendInitialEvents") != "":
		status := &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid}
		encode(w, http.StatusUnprocessableEntity, status)
	case query.Get("watch") != "":
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	default:
		query.Set("limit", "1000")
		s.lists <- r.URL.Path + "?" + r.URL.RawQuery
		r.URL.RawQuery = query.Encode()
		s.apiServer.ServeHTTP(w, r)
	}
}

func (s watchServer) start(t *testing.T) *Client {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	client, err := NewClient(&rest.Config{Host: server.URL})
	lab.Check(t, err)
	return client
}

// TestWatch expects the same fleet as from Read, also if a permission is missing that Read does not
// need.
func TestWatch(t *testing.T) {
	t.Parallel()
	for forbidden, want := range map[string]string{
		"": "", "nodes": "nodes is forbidden", "pods": "pods is forbidden", "leases": "error: listing the Leases of namespace capture-cni: failed to list",
	} {
		s := watchServer{&apiServer{forbids: forbidden, nodes: []corev1.Node{newNode("n1", corev1.ConditionTrue, nil)}}, make(chan string, 200)}
		s.apiServer.leases = append(s.apiServer.leases, newLease("n1", 0, good(nil)))
		s.apiServer.pods = append(s.apiServer.pods, newAgent("n1", corev1.ConditionTrue, InstallerContainer), newPod("n1", "web", nil))
		var seen *Fleet
		var fault error
		err := Watch(t.Context(), s.start(t), DefaultNamespace, func(f *Fleet, err error) bool {
			seen, fault = f, err
			return true
		})
		lab.Check(t, err)
		switch text, isError := strings.CutPrefix(want, "error: "); {
		case isError:
			if fault == nil || !strings.HasPrefix(fault.Error(), text) || !strings.Contains(fault.Error(), "(watch leases)") {
				t.Errorf("without %s: %v", forbidden, fault)
			}
		case fault != nil:
			t.Errorf("without %s: %v", forbidden, fault)
		case want == "" && (len(seen.Unknown) > 0 || len(seen.Nodes) != 1 || seen.Nodes[0].State != Ready || seen.Nodes[0].Meshed != 1):
			t.Errorf("seen are %+v, %q", seen.Nodes, seen.Unknown)
		case want != "" && (len(seen.Unknown) != 1 || !strings.Contains(seen.Unknown[0], want) || !strings.Contains(seen.Unknown[0], "(watch "+forbidden+")")):
			t.Errorf("without %s: %q", forbidden, seen.Unknown)
		}
		for len(s.lists) > 0 {
			list := <-s.lists
			isOfStates := strings.Contains(list, "labelSelector=app.kubernetes.io%2Fcomponent%3Dnode-state")
			if strings.Contains(list, "resourceVersion=") || strings.Contains(list, "/leases") != isOfStates ||
				strings.Contains(list, "/pods") != strings.Contains(list, "fieldSelector=status.phase") {
				t.Errorf("listed by %s", list)
			}
		}
	}
}

// TestWatchGoesOn expects another attempt after a failed one, not earlier than settleTime, until ctx
// ends.
func TestWatchGoesOn(t *testing.T) {
	t.Parallel()
	s := watchServer{&apiServer{forbids: "leases"}, make(chan string, 200)}
	ctx, end := context.WithCancel(t.Context())
	var looks []time.Time
	err := Watch(ctx, s.start(t), DefaultNamespace, func(_ *Fleet, err error) bool {
		if looks = append(looks, time.Now()); len(looks) == 2 {
			end()
		}
		return err == nil
	})
	if !errors.Is(err, context.Canceled) || len(looks) != 2 {
		t.Errorf("it ended with %v after %d looks", err, len(looks))
	} else if pause := looks[1].Sub(looks[0]); pause < settleTime || pause > refreshTime {
		t.Errorf("the second look was %s after the first", pause)
	}
}
