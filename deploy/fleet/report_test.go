// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/report"
)

// agents replaces the agents' containers. Each container's report has one file.
type agents struct {
	mu    sync.Mutex
	asked []string
}

func (a *agents) exec(ctx context.Context, agent Agent, container string, command []string, out io.Writer) error {
	a.mu.Lock()
	a.asked = append(a.asked, agent.name+" "+container+" "+strings.Join(command, " "))
	a.mu.Unlock()
	switch agent.name {
	case "agent-of-forbidden":
		return apierrors.NewForbidden(schema.GroupResource{}, "", nil)
	case "agent-of-broken":
		return errors.New("the container does not run")
	case "agent-of-endless":
		for ctx.Err() == nil {
			if _, err := out.Write(make([]byte, 1<<20)); err != nil {
				return err
			}
		}
		return ctx.Err()
	case "agent-of-garbled":
		_, err := io.WriteString(out, "no archive")
		return err
	}
	return report.WriteBundle(ctx, out, time.Now(), []report.BundlePart{{Name: "node/verify.json", Write: func(_ context.Context, out io.Writer) error {
		_, err := fmt.Fprintf(out, "of %s", container)
		return err
	}}})
}

// reported returns the files of a report, by their names.
func reported(t *testing.T, s *apiServer, a *agents, nodes ...string) (map[string]string, error) {
	t.Helper()
	var archive bytes.Buffer
	reporter := Reporter{Client: s.start(t), Exec: a.exec, Namespace: DefaultNamespace, Nodes: nodes, Version: "v0.3.0", Progress: func(int, int, string) {}}
	if err := reporter.Write(t.Context(), &archive, time.Now()); err != nil {
		return nil, err
	}
	files, err := unpack(&archive)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]string{}
	for _, f := range files {
		byName[f.name] = string(f.content)
	}
	return byName, nil
}

// TestReport expects the reports of nodes that need attention and of one other node, and the list of
// missing parts.
func TestReport(t *testing.T) {
	t.Parallel()
	s, a := &apiServer{}, &agents{}
	for _, node := range []string{"broken", "good-1", "good-2", "garbled", "endless"} {
		state := good(&report.Pods{})
		if !strings.HasPrefix(node, "good") {
			state.Findings = report.Findings{{Severity: report.Problem, Subject: "entry", Reason: "no conflist"}}
		}
		s.leases = append(s.leases, newLease(node, 0, state))
		s.pods = append(s.pods, newAgent(node, corev1.ConditionTrue, InstallerContainer, GuardContainer))
	}
	s.pods = append(s.pods, newPod("bare", "web", nil))
	files, err := reported(t, s, a)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"about.txt", "fleet.json", "missing.txt", "nodes/good-1/guard/node/verify.json", "nodes/good-1/installer/node/verify.json"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(files))); diff != "" {
		t.Error(diff)
	}
	if files["nodes/good-1/guard/node/verify.json"] != "of guard" || !strings.Contains(files["fleet.json"], "entry: no conflist") {
		t.Errorf("%q", files)
	}
	for _, missing := range []string{"nodes/broken/installer/report: the container does not run", "nodes/garbled/guard/report: reading the agent's archive", "nodes/endless/guard/report: the output of report in pod capture-cni/agent-of-endless has more than 8388608 bytes", "nodes/bare/agent: no agent runs"} {
		if !strings.Contains(files["missing.txt"], missing) {
			t.Errorf("%q is missing in:\n%s", missing, files["missing.txt"])
		}
	}
	if !slices.Contains(a.asked, "agent-of-good-1 guard /capture-cni-node report") {
		t.Errorf("asked: %q", a.asked)
	}
}

// TestReportOfAffectedNodes expects the report of a good node if one of its pods is not captured, but
// not if its pods are only exempt.
func TestReportOfAffectedNodes(t *testing.T) {
	t.Parallel()
	pod := func(name string, state report.Code) report.NamedPod {
		return report.NamedPod{Namespace: "shop", Name: name, State: state}
	}
	s, a := &apiServer{}, &agents{}
	for node, named := range map[string][]report.NamedPod{
		"first": {pod("a", report.Uncaptured), pod("z", report.Outdated)}, "middle": {pod("b", report.Drifted), pod("c", report.Exempt)},
		"exempt": {pod("d", report.Exempt)}, "well-1": nil, "well-2": nil,
	} {
		s.leases = append(s.leases, newLease(node, 0, good(&report.Pods{Named: named})))
		s.pods = append(s.pods, newAgent(node, corev1.ConditionTrue, InstallerContainer))
		for _, pod := range named {
			s.pods = append(s.pods, newPod(node, pod.Name, nil))
		}
	}
	if _, err := reported(t, s, a); err != nil {
		t.Fatal(err)
	}
	var asked []string
	for _, call := range a.asked {
		asked = append(asked, strings.Fields(call)[0])
	}
	slices.Sort(asked)
	want := []string{"agent-of-exempt", "agent-of-first", "agent-of-middle"} // agent-of-exempt is a good node, for comparison
	if !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
}

// TestReportOfNodes expects the reports of the named nodes only.
func TestReportOfNodes(t *testing.T) {
	t.Parallel()
	s, a := &apiServer{}, &agents{}
	for n := range 30 {
		node := fmt.Sprintf("node-%02d", n)
		s.leases = append(s.leases, newLease(node, time.Hour, good(nil)))
		s.pods = append(s.pods, newAgent(node, corev1.ConditionTrue, InstallerContainer))
	}
	if _, err := reported(t, s, a, "node-07", "node-21"); err != nil || len(a.asked) != 2 {
		t.Errorf("asked %q, %v", a.asked, err)
	}
	a = &agents{}
	if _, err := reported(t, s, a); err != nil || len(a.asked) != maxReported-1 {
		t.Errorf("of 30 stale nodes %d were asked, %v", len(a.asked), err)
	}
	a = &agents{}
	if _, err := reported(t, s, a, "node-00"); err != nil || len(a.asked) != 1 {
		t.Errorf("asked %q, %v", a.asked, err)
	}
	s.pods = append(s.pods, newAgent("forbidden", corev1.ConditionTrue, InstallerContainer))
	for want, err := range map[string]error{
		`node "nowhere" has neither`:                      errorOf(reported(t, s, a, "nowhere")),
		"asking the agents: ":                             errorOf(reported(t, s, a, "forbidden")),
		"listing the Leases ":                             errorOf(reported(t, &apiServer{forbids: "leases"}, a)),
		"there is nothing to report: no node is selected": errorOf(reported(t, &apiServer{}, a)),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestUnpackRefusesOtherFiles expects an error for names outside the archive's own directory, and for
// files that are not regular.
func TestUnpackRefusesOtherFiles(t *testing.T) {
	t.Parallel()
	for _, header := range []tar.Header{
		{Name: "capture-cni/../x"},
		{Name: "capture-cni/a/../../x"},
		{Name: "capture-cni/./x"},
		{Name: "capture-cni//x"},
		{Name: "capture-cni/"},
		{Name: "x"},
		{Name: "/capture-cni/x"},
		{Name: "capture-cnix"},
		{Name: "../capture-cni/x"},
		{Name: "capture-cni/x\x1b"},
		{Name: "capture-cni/x\u009b"},
		{Name: "capture-cni/x", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		{Name: "capture-cni/x", Typeflag: tar.TypeLink, Linkname: "y"},
		{Name: "capture-cni/x", Typeflag: tar.TypeFifo},
		{Name: "capture-cni/x", Typeflag: tar.TypeDir},
	} {
		var archive bytes.Buffer
		zipped := gzip.NewWriter(&archive)
		entries := tar.NewWriter(zipped)
		for _, h := range []tar.Header{{Name: "capture-cni/before"}, header} {
			h.Mode = 0o600
			if err := entries.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(entries.Close(), zipped.Close()); err != nil {
			t.Fatal(err)
		}
		if files, err := unpack(&archive); err == nil || len(files) != 1 || files[0].name != "before" {
			t.Errorf("%q of type %c: %+v, %v", header.Name, header.Typeflag, files, err)
		}
	}
}

func errorOf[T any](_ T, err error) error { return err }

// TestUnpackOfDamagedArchives expects the files that precede the damage.
func TestUnpackOfDamagedArchives(t *testing.T) {
	t.Parallel()
	content := make([]byte, maxFile)
	_, _ = rand.Read(content)
	var whole, garbage bytes.Buffer
	zipped := gzip.NewWriter(&garbage)
	_, err := zipped.Write(content)
	parts := []report.BundlePart{partOf("a", []byte("x"), nil), partOf("b", content, nil)}
	lab.Check(t, errors.Join(err, zipped.Close(), report.WriteBundle(t.Context(), &whole, time.Now(), parts)))
	for archive, kept := range map[*bytes.Buffer]int{&garbage: 0, bytes.NewBuffer(whole.Bytes()[:whole.Len()/2]): 1} {
		if files, err := unpack(archive); err == nil || !strings.HasPrefix(err.Error(), "reading the agent's archive: ") || len(files) != kept {
			t.Errorf("%d files, want %d; %v", len(files), kept, err)
		}
	}
}

// TestUnpackIsBounded expects limits on the size of an archive, and of each file.
func TestUnpackIsBounded(t *testing.T) {
	t.Parallel()
	var archive bytes.Buffer
	var parts []report.BundlePart
	for i := range 20 {
		parts = append(parts, partOf(fmt.Sprintf("pods/%d.txt", i), bytes.Repeat([]byte("x"), maxFile), nil))
	}
	if err := report.WriteBundle(t.Context(), &archive, time.Now(), parts); err != nil {
		t.Fatal(err)
	}
	if files, err := unpack(&archive); err == nil || len(files) != maxArchive/maxFile {
		t.Errorf("%d files, %v", len(files), err)
	}
	archive.Reset()
	if err := report.WriteBundle(t.Context(), &archive, time.Now(), []report.BundlePart{partOf("large", make([]byte, maxFile+1), nil)}); err != nil {
		t.Fatal(err)
	}
	if files, err := unpack(&archive); err != nil || len(files) == 0 || len(files[0].content) > maxFile {
		t.Errorf("%d files, %v", len(files), err)
	}
}
