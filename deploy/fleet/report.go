// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/capture-cni/capture-cni/install/report"
)

// Reporter writes an archive for a support case, which contains the fleet's state, and the reports of
// some nodes' agents.
type Reporter struct {
	Client    *Client
	Exec      Exec
	Namespace string   // namespace of the agents
	Nodes     []string // nodes to report; if empty, the nodes that need attention, and one other node
	Version   string   // version of this program
	Progress  func(done, all int, node string)
}

const (
	maxReported   = 10 // nodes, unless Nodes names them
	reportsAtOnce = 4
	reportTimeout = 2 * time.Minute // for one container
)

// Write writes the archive to out. The archive's missing.txt lists the parts that can't be read. Write
// returns an error if the fleet can't be read, nothing can be reported, a named node is unknown, a
// necessary permission is missing, ctx ends, or writing to out fails.
func (r Reporter) Write(ctx context.Context, out io.Writer, now time.Time) error {
	f, err := Read(ctx, r.Client, r.Namespace)
	if err != nil {
		return err
	}
	nodes, err := r.choose(f)
	if err != nil {
		return err
	}
	if len(nodes) == 0 {
		return fmt.Errorf("there is nothing to report: %s", strings.Join(append(f.Unknown, f.Notes...), "; "))
	}
	reports := make([][]report.BundlePart, len(nodes))
	group := errgroup.Group{}
	group.SetLimit(reportsAtOnce)
	var progress sync.Mutex
	finished := 0
	for i, node := range nodes {
		group.Go(func() error {
			parts, err := r.ofNode(ctx, node)
			reports[i] = parts
			progress.Lock()
			defer progress.Unlock()
			finished++
			r.Progress(finished, len(nodes), node.Name)
			return cmp.Or(err, ctx.Err())
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("asking the agents: %w", err)
	}
	about := fmt.Sprintf("kubectl capture-cni, version %s\ntime %s\nnodes %d of %d\n",
		r.Version, now.UTC().Format(time.RFC3339), len(nodes), len(f.Nodes))
	state, err := json.MarshalIndent(f, "", " ")
	parts := []report.BundlePart{partOf("about.txt", []byte(about), nil), partOf("fleet.json", append(state, '\n'), err)}
	return report.WriteBundle(ctx, out, now, append(parts, slices.Concat(reports...)...))
}

// choose returns the nodes to report: the named nodes or, without names, up to maxReported nodes,
// which are those that need attention and one that does not.
func (r Reporter) choose(f *Fleet) (chosen []Node, err error) {
	for _, name := range r.Nodes {
		i := slices.IndexFunc(f.Nodes, func(n Node) bool { return n.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("node %q has neither an agent nor pods of the mesh: expected a node of kubectl capture-cni status -o wide", name)
		}
		chosen = append(chosen, f.Nodes[i])
	}
	if len(r.Nodes) > 0 {
		return chosen, nil
	}
	affected := map[string]bool{}
	for _, pod := range f.Pods {
		affected[pod.Node] = affected[pod.Node] || pod.State.IsMissing()
	}
	bad := func(n Node) bool { return !n.State.Good() || affected[n.Name] }
	for _, node := range f.Nodes {
		if bad(node) && len(chosen) < maxReported-1 {
			chosen = append(chosen, node)
		}
	}
	if i := slices.IndexFunc(f.Nodes, func(n Node) bool { return !bad(n) }); i >= 0 {
		chosen = append(chosen, f.Nodes[i])
	}
	return chosen, nil
}

// ofNode returns the reports of all containers of a node's agent. If a container does not answer, its
// report becomes a missing part. ofNode returns an error only if the API server forbids a request.
func (r Reporter) ofNode(ctx context.Context, node Node) (parts []report.BundlePart, err error) {
	directory := "nodes/" + node.Name + "/"
	if node.agent == nil {
		return []report.BundlePart{partOf(directory+"agent", nil, errors.New("no agent runs on the node"))}, nil
	}
	containers := []string{InstallerContainer}
	if node.agent.guarded {
		containers = append(containers, GuardContainer)
	}
	for _, container := range containers {
		prefix := directory + container + "/"
		archive, failed := r.Exec.output(ctx, *node.agent, container, reportTimeout, maxArchive, "report")
		if apierrors.IsForbidden(failed) {
			return nil, failed
		}
		files, err := unpack(bytes.NewReader(archive))
		for _, file := range files {
			parts = append(parts, partOf(prefix+file.name, file.content, nil))
		}
		if err := cmp.Or(failed, err); err != nil {
			parts = append(parts, partOf(prefix+"report", nil, err))
		}
	}
	return parts, nil
}

func partOf(name string, content []byte, err error) report.BundlePart {
	return report.BundlePart{Name: name, Write: func(_ context.Context, out io.Writer) error {
		if err != nil {
			return err
		}
		_, err := out.Write(content)
		return err
	}}
}
