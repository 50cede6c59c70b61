// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/kube"
	"github.com/capture-cni/capture-cni/install/metrics"
	"github.com/capture-cni/capture-cni/install/node"
	"github.com/capture-cni/capture-cni/install/pods"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/install/telemetry"
)

// maxMetrics limits the bytes that are read, and exceeds the size of the metrics of agent and guard.
const maxMetrics = 1 << 20

// metricsAt returns a function that reads the metrics at an address, and writes the samples of known
// metrics. It omits all other lines, because the address may belong to another program.
func metricsAt(address string) func(context.Context, io.Writer) error {
	return func(ctx context.Context, out io.Writer) error {
		address, err := listenAddress(address)
		if err != nil {
			return err
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
		if err != nil {
			return err
		}
		direct := &http.Client{
			Transport:     &http.Transport{DisableKeepAlives: true}, // without a proxy
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
		response, err := direct.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("reading metrics at %s: status %d", address, response.StatusCode)
		}
		return copyMetrics(response.Body, out)
	}
}

func copyMetrics(in io.Reader, out io.Writer) error {
	body := &io.LimitedReader{R: in, N: maxMetrics}
	lines := bufio.NewScanner(body)
	leftOut := 0
	for lines.Scan() {
		switch line := lines.Text(); {
		case strings.HasPrefix(line, "#") || line == "":
		case isKnownSample(line):
			fmt.Fprintln(out, line)
		default:
			leftOut++
		}
	}
	err := lines.Err()
	if body.N == 0 {
		err = errors.Join(err, fmt.Errorf("cut after %d bytes", maxMetrics))
	}
	if leftOut > 0 {
		err = errors.Join(err, fmt.Errorf("%d lines that are no samples of known metrics are left out", leftOut))
	}
	return err
}

// Forms of a sample in Prometheus' text format, and of one label in it.
var (
	sample = regexp.MustCompile(`^([a-z_]+)(?:\{((?:[a-z]+="[^"\\]*",?)*)\})? (\S+)$`)
	label  = regexp.MustCompile(`([a-z]+)="([^"\\]*)"`)
)

// isKnownSample reports whether a line is a sample of a known metric, with known labels and plain
// values.
func isKnownSample(line string) bool {
	parts := sample.FindStringSubmatch(line)
	if parts == nil || !isKnownMetric(parts[1]) {
		return false
	}
	if _, err := strconv.ParseFloat(parts[3], 64); err != nil {
		return false
	}
	for _, pair := range label.FindAllStringSubmatch(parts[2], -1) {
		if !slices.Contains(knownLabels, pair[1]) || report.Plain(pair[2]) != pair[2] {
			return false
		}
	}
	return true
}

// knownLabels contains the labels of our metrics, and of the metrics about Go and the process.
var knownLabels = []string{
	"agent", "cause", "decision", "hash", "le", "mesh", "name", "part",
	"plugin", "quantile", "reason", "result", "severity", "socket", "source", "stage", "state", "type", "version", "writer",
}

func isKnownMetric(name string) bool {
	if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
		return true
	}
	known := slices.Concat(node.KeeperMetrics(), kube.Metrics(), pods.Metrics(), telemetry.Metrics(), guard.Metrics(), kube.EvictorMetrics())
	return slices.ContainsFunc(known, func(m metrics.Metric) bool {
		suffix, found := strings.CutPrefix(name, m.Name)
		return found && slices.Contains([]string{"", "_bucket", "_sum", "_count"}, suffix) // a histogram has the last three
	})
}
