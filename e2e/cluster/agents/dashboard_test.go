// SPDX-License-Identifier: Apache-2.0

package agents

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestDashboardQueries has a Prometheus scrape the metrics of a node's agent and
// guard, and runs all queries of the dashboard. Only queries about faults may
// return nothing.
func TestDashboardQueries(t *testing.T) {
	c.InstallChart(t, "guard.policy=evict") // has all metrics
	n := c.NewNamespace(t, suite.Restricted, cluster.Injected)
	n.Run(t, suite.Server("web", c.Nodes[0].Name))
	var pages [2]string
	lab.Eventually(t, func() error { // after each has seen the pod
		var errs [2]error
		_, pages[0], errs[0] = suite.AskAgent(t.Context(), c.Nodes[0], "/metrics")
		_, pages[1], errs[1] = suite.AskGuard(t.Context(), c.Nodes[0], "/metrics")
		if err := errors.Join(errs[:]...); err != nil {
			return err
		}
		if !strings.Contains(pages[0], "capture_cni_add_stage_seconds_bucket{") || !strings.Contains(pages[1], "capture_cni_pods{") {
			return fmt.Errorf("the metrics are\n%s", pages)
		}
		return nil
	})
	var targets []string
	for _, page := range pages {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; version=0.0.4")
			_, _ = io.WriteString(w, page)
		}))
		t.Cleanup(server.Close)
		targets = append(targets, server.Listener.Addr().String())
	}
	prometheus := lab.StartPrometheus(t, targets...)
	for _, query := range dashboardQueries(t) {
		aboutFaults := faults.MatchString(query)
		lab.Eventually(t, func() error { // a rate needs two samples
			values, err := prometheus.Query(variables.Replace(query))
			if err == nil && len(values) == 0 && !aboutFaults {
				err = errors.New("the query returns no series")
			}
			if err != nil {
				err = fmt.Errorf("%s: %w", query, err)
			}
			return err
		})
	}
}

var (
	faults    = regexp.MustCompile("== 0|== 1$|contended|other_mesh_entry|preflight_problems")
	variables = strings.NewReplacer("$__rate_interval", "5s", "$cluster", ".*", "$node", ".*")
)

func dashboardQueries(t *testing.T) (queries []string) {
	t.Helper()
	text, err := os.ReadFile("../../../deploy/chart/dashboard.json")
	lab.Check(t, err)
	var board struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	lab.Check(t, json.Unmarshal(text, &board))
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			queries = append(queries, target.Expr)
		}
	}
	if len(queries) < 10 {
		t.Fatalf("got the queries %q, want at least ten", queries)
	}
	return queries
}
