// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/install/report"
)

// published is a Writer of a node with a stand-in for the API server.
type published struct {
	*LeaseWriter
	server *kubeapi.Server
	state  report.NodeState
	uid    string
	log    strings.Builder
}

func newPublished(t *testing.T) *published {
	t.Helper()
	server, err := kubeapi.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	path, err := server.WriteKubeconfig(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	access, err := clientcmd.BuildConfigFromFlags("", filepath.Clean(path))
	if err != nil {
		t.Fatal(err)
	}
	api, err := New(access)
	if err != nil {
		t.Fatal(err)
	}
	p := &published{server: server, state: report.NodeState{Version: "v1", Mode: "dropin"}, uid: "6c1f"}
	p.LeaseWriter = NewLeaseWriter(LeaseSettings{
		Namespace: "mesh", Node: "node-1", Holder: "agent",
		NodeUID: func() string { return p.uid },
		State:   func(context.Context) report.NodeState { return p.state },
	}, api, slog.New(slog.NewTextHandler(&p.log, nil)))
	return p
}

// lease returns the Lease and the state in it.
func (p *published) lease(t *testing.T) (*coordination.Lease, report.NodeState) {
	t.Helper()
	lease := p.server.Lease("mesh", "node-1")
	if lease == nil {
		t.Fatalf("there is no Lease; log: %s", p.log.String())
	}
	state, err := report.DecodeNode(lease.Annotations[report.NodeAnnotation])
	if err != nil {
		t.Fatal(err)
	}
	return lease, state
}

// TestLease writes the state with the Node as its owner, and keeps what others added.
func TestLease(t *testing.T) {
	t.Parallel()
	p := newPublished(t)
	begin := time.Now()
	p.Publish(t.Context(), begin)
	lease, state := p.lease(t)
	if state.Version != "v1" || *lease.Spec.HolderIdentity != "agent" || *lease.Spec.LeaseDurationSeconds != 660 || lease.Spec.RenewTime.Unix() != begin.Unix() {
		t.Errorf("%+v, %+v", state, lease.Spec)
	}
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "node-1", UID: "6c1f"}
	if len(lease.OwnerReferences) != 1 || lease.OwnerReferences[0] != owner {
		t.Errorf("owners: %+v", lease.OwnerReferences)
	}
	lease.Labels["theirs"] = "kept"
	p.server.PutLease(lease)
	p.state.Version, p.uid = "v2", ""
	p.Publish(t.Context(), begin.Add(interval)) // a conflict
	p.Publish(t.Context(), begin.Add(2*interval))
	lease, state = p.lease(t)
	if state.Version != "v2" || lease.Labels["theirs"] != "kept" || len(lease.OwnerReferences) != 1 {
		t.Errorf("after a change: %+v, %+v", state, lease.ObjectMeta)
	}
}

// TestPace writes on a change, at most every ten seconds, and every five minutes
// without one.
func TestPace(t *testing.T) {
	t.Parallel()
	p := newPublished(t)
	begin := time.Now()
	for _, step := range []struct {
		at      time.Duration
		version string
		writes  int
	}{
		{0, "v1", 1},
		{9 * time.Second, "v2", 0},
		{10 * time.Second, "v3", 1},
		{11 * time.Second, "v4", 0},
		{20 * time.Second, "v3", 0},
		{5 * time.Minute, "v3", 0},
		{5*time.Minute + 10*time.Second, "v3", 1},
		{-time.Hour, "v3", 1}, // the clock was set back
	} {
		p.state.Version = step.version
		before := p.server.Requests()
		p.Publish(t.Context(), begin.Add(step.at))
		writes := p.server.Requests() - before
		if step.at == 0 {
			writes-- // it asks for the Lease first
		}
		if writes != step.writes {
			t.Errorf("after %s: %d writes, want %d", step.at, writes, step.writes)
		}
	}
}

// TestFindingsExpire has a node with findings: its Lease is renewed each minute, and lasts three.
// Without findings it lasts eleven.
func TestFindingsExpire(t *testing.T) {
	t.Parallel()
	p := newPublished(t)
	p.state.Findings = report.Findings{{Severity: report.Problem, Subject: "entry", Reason: "no list"}}
	now := time.Now()
	for _, step := range []struct {
		after   time.Duration
		renewed bool
		lasts   int32
	}{{0, true, 180}, {59 * time.Second, false, 180}, {time.Second, true, 180}, {time.Minute, true, 180}} {
		now = now.Add(step.after)
		p.Publish(t.Context(), now)
		lease, _ := p.lease(t)
		if renewed := lease.Spec.RenewTime.Unix() == now.Unix(); renewed != step.renewed || *lease.Spec.LeaseDurationSeconds != step.lasts {
			t.Errorf("after %s: renewed %v, for %d s", step.after, renewed, *lease.Spec.LeaseDurationSeconds)
		}
	}
	p.state.Findings = report.Findings{{Severity: report.Warning, Reason: "a full disk"}}
	p.Publish(t.Context(), now.Add(interval))
	if lease, _ := p.lease(t); *lease.Spec.LeaseDurationSeconds != 180 {
		t.Errorf("with a warning: %+v", lease.Spec)
	}
	p.state.Findings = nil
	p.Publish(t.Context(), now.Add(2*interval))
	if lease, state := p.lease(t); !state.Good() || *lease.Spec.LeaseDurationSeconds != 660 {
		t.Errorf("without findings: %+v", lease.Spec)
	}
}

// TestFailingWrites slow down, and are logged once.
func TestFailingWrites(t *testing.T) {
	t.Parallel()
	p := newPublished(t)
	api := &refusing{}
	p.api = api
	now := time.Now()
	for range 360 { // an hour
		p.Publish(t.Context(), now)
		now = now.Add(interval)
	}
	if api.requests < 12 || api.requests > 20 {
		t.Errorf("%d requests in an hour", api.requests)
	}
	if lines := strings.Count(p.log.String(), "publishing the node's state failed"); lines != 1 {
		t.Errorf("logged %d times: %s", lines, p.log.String())
	}
}

// TestWritesRecover fails for an hour, and then succeeds: changes come as often as before.
func TestWritesRecover(t *testing.T) {
	t.Parallel()
	p := newPublished(t)
	served, now := p.api, time.Now()
	for round := range 2 {
		p.api = &refusing{}
		for range 360 {
			p.Publish(t.Context(), now)
			now = now.Add(interval)
		}
		p.api = served
		now = now.Add(maxPause)
		for i := range 3 {
			p.state.Version = fmt.Sprintf("v%d.%d", round, i)
			p.Publish(t.Context(), now)
			if _, state := p.lease(t); state.Version != p.state.Version {
				t.Errorf("the Lease has version %s, want %s", state.Version, p.state.Version)
			}
			now = now.Add(interval)
		}
		if failed, again := strings.Count(p.log.String(), "publishing the node's state failed"), strings.Count(p.log.String(), "is published again"); failed != round+1 || again != round+1 {
			t.Errorf("round %d: %d failures and %d recoveries are logged", round, failed, again)
		}
	}
}

// conflicting has a Lease that others edit, too: it refuses an update of an earlier version.
type conflicting struct {
	LeaseAPI
	lease *coordination.Lease
	edits int
}

func (c *conflicting) edit(lease *coordination.Lease) *coordination.Lease {
	c.edits++
	c.lease = lease.DeepCopy()
	c.lease.ResourceVersion = strconv.Itoa(c.edits)
	return c.lease.DeepCopy()
}

func (c *conflicting) Lease(context.Context, string, string) (*coordination.Lease, error) {
	return c.lease.DeepCopy(), nil
}

func (c *conflicting) UpdateLease(_ context.Context, lease *coordination.Lease) (*coordination.Lease, error) {
	if lease.ResourceVersion != c.lease.ResourceVersion {
		return lease, apierrors.NewConflict(coordination.Resource("leases"), lease.Name, errors.New("the object has been modified"))
	}
	return c.edit(lease), nil
}

// TestEditedLease has another program edit the Lease between two writes: the second attempt
// reads it anew.
func TestEditedLease(t *testing.T) {
	t.Parallel()
	p := newPublished(t)
	now := time.Now()
	p.Publish(t.Context(), now)
	first, _ := p.lease(t)
	api := &conflicting{}
	p.api, p.stored = api, api.edit(first)
	for _, version := range []string{"v2", "v3", "v4"} {
		p.state.Version = version
		api.edit(api.lease)
		for range 2 {
			now = now.Add(interval)
			p.Publish(t.Context(), now)
		}
		if state, err := report.DecodeNode(api.lease.Annotations[report.NodeAnnotation]); err != nil || state.Version != version {
			t.Errorf("the Lease has version %s, want %s: %v", state.Version, version, err)
		}
	}
}

type refusing struct {
	LeaseAPI
	requests int
}

func (r *refusing) Lease(context.Context, string, string) (*coordination.Lease, error) {
	r.requests++
	return nil, errors.New("forbidden")
}

func (r *refusing) UpdateLease(context.Context, *coordination.Lease) (*coordination.Lease, error) {
	r.requests++
	return nil, errors.New("forbidden")
}

// TestDeletedLease writes it anew.
func TestDeletedLease(t *testing.T) {
	t.Parallel()
	p := newPublished(t)
	begin := time.Now()
	p.stored = p.LeaseWriter.lease(nil, "", begin) // which the API server does not have
	p.Publish(t.Context(), begin)
	p.Publish(t.Context(), begin.Add(interval))
	p.lease(t)
}

// TestForeignLease stays as it is.
func TestForeignLease(t *testing.T) {
	t.Parallel()
	p := newPublished(t)
	holder := "another program"
	p.server.PutLease(&coordination.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "mesh", Name: "node-1"}, Spec: coordination.LeaseSpec{HolderIdentity: &holder},
	})
	p.Publish(t.Context(), time.Now())
	if lease := p.server.Lease("mesh", "node-1"); *lease.Spec.HolderIdentity != holder || len(lease.Annotations) > 0 {
		t.Errorf("it was changed: %+v", lease)
	}
	if !strings.Contains(p.log.String(), "a namespace of their own") {
		t.Errorf("logged: %s", p.log.String())
	}
}
