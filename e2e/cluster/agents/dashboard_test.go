// SPDX-License-Identifier: Apache-2.0

package agents

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
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
	ask := startPrometheus(t, pages[:]...)
	for _, query := range dashboardQueries(t) {
		aboutFaults := faults.MatchString(query)
		lab.Eventually(t, func() error { // a rate needs two samples
			err := ask(variables.Replace(query))
			if err != nil && !(aboutFaults && errors.Is(err, errNoAnswer)) {
				return fmt.Errorf("%s: %w", query, err)
			}
			return nil
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

var errNoAnswer = errors.New("the query returns no series")

// startPrometheus starts a Prometheus that scrapes these pages every second. ask
// runs a query, and fails where it returns nothing.
func startPrometheus(t *testing.T, pages ...string) (ask func(query string) error) {
	t.Helper()
	var targets []string
	for _, page := range pages {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain; version=0.0.4")
			_, _ = io.WriteString(w, page)
		}))
		t.Cleanup(server.Close)
		targets = append(targets, server.Listener.Addr().String())
	}
	list, err := json.Marshal(targets)
	lab.Check(t, err)
	dir := t.TempDir()
	config := fmt.Sprintf(`{"global": {"scrape_interval": "1s"}, "scrape_configs": [{"job_name": "capture-cni", "static_configs": [{"targets": %s}]}]}`, list)
	lab.Check(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600))
	address, err := lab.FreeAddress()
	lab.Check(t, err)
	command := exec.Command("prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn")
	command.Stderr = os.Stderr
	lab.Check(t, command.Start())
	t.Cleanup(func() { _ = command.Process.Signal(syscall.SIGTERM); _ = command.Wait() })
	return func(query string) error {
		answer, err := http.Get("http://" + address + "/api/v1/query?query=" + url.QueryEscape(query))
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		var result struct {
			Error string
			Data  struct{ Result []any }
		}
		if err := json.NewDecoder(answer.Body).Decode(&result); err != nil || result.Error != "" {
			return fmt.Errorf("prometheus returns %q (%v)", result.Error, err)
		}
		if len(result.Data.Result) == 0 {
			return errNoAnswer
		}
		return nil
	}
}
