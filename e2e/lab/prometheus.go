// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// Prometheus is a running Prometheus server.
type Prometheus struct{ address string }

// StartPrometheus starts a Prometheus server, which scrapes /metrics of each address every second until
// the test ends.
func StartPrometheus(t testing.TB, addresses ...string) Prometheus {
	t.Helper()
	RequireProgram(t, "prometheus")
	list, err := json.Marshal(addresses)
	Check(t, err)
	dir := t.TempDir()
	config := fmt.Sprintf(`{"global": {"scrape_interval": "1s"}, "scrape_configs": [{"job_name": "capture-cni", "static_configs": [{"targets": %s}]}]}`, list)
	Check(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600))
	address, err := FreeAddress()
	Check(t, err)
	command := exec.Command("prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn")
	command.Stderr = t.Output()
	Check(t, command.Start())
	t.Cleanup(func() { _ = command.Process.Signal(syscall.SIGTERM); _ = command.Wait() })
	return Prometheus{address}
}

// Query returns the values of all series in the result of a PromQL query.
func (p Prometheus) Query(query string) (values []float64, err error) {
	answer, err := http.Get("http://" + p.address + "/api/v1/query?query=" + url.QueryEscape(query))
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var result struct {
		Error string
		Data  struct{ Result []struct{ Value [2]any } } // Value contains a time, and the value as a string
	}
	if err := json.NewDecoder(answer.Body).Decode(&result); err != nil || result.Error != "" {
		return nil, fmt.Errorf("prometheus returns %q (%v)", result.Error, err)
	}
	for _, series := range result.Data.Result {
		value, err := strconv.ParseFloat(fmt.Sprint(series.Value[1]), 64)
		if err != nil {
			return nil, fmt.Errorf("reading the value of a series: %w", err)
		}
		values = append(values, value)
	}
	return values, nil
}
