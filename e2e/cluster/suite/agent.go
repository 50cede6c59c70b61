// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// AskAgent requests a path of a node's agent, /readyz or /metrics, as the kubelet does.
func AskAgent(ctx context.Context, node *cluster.Node, path string) (status int, body string, err error) {
	return request(ctx, node, "127.0.0.1:15015", path)
}

// AskGuard requests a path of a node's guard likewise.
func AskGuard(ctx context.Context, node *cluster.Node, path string) (status int, body string, err error) {
	return request(ctx, node, "127.0.0.1:15016", path)
}

func request(ctx context.Context, node *cluster.Node, address, path string) (status int, body string, err error) {
	host, err := node.Host()
	if err != nil {
		return 0, "", err
	}
	defer host.NetNS.Close()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (conn net.Conn, err error) {
			err = host.Do(func() (err error) {
				conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
				return err
			})
			return conn, err
		},
	}}
	asked, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return 0, "", err
	}
	response, err := client.Do(asked)
	if err != nil {
		return 0, "", fmt.Errorf("asking %s on %s: %w", address, node.Name, err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return response.StatusCode, string(content), err
}

// WaitAgentReady waits until a node's agent is ready.
func WaitAgentReady(t *testing.T, node *cluster.Node) {
	t.Helper()
	lab.Eventually(t, func() error {
		status, body, err := AskAgent(t.Context(), node, "/readyz")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("the agent of %s is not ready: %s", node.Name, body)
		}
		return err
	})
}

// PodRequests returns how many requests of pods a node's agent has answered, by source.
func PodRequests(t *testing.T, node *cluster.Node) map[string]int {
	t.Helper()
	_, body, err := AskAgent(t.Context(), node, "/metrics")
	lab.Check(t, err)
	counts := map[string]int{}
	for line := range strings.Lines(body) {
		if rest, ok := strings.CutPrefix(line, `capture_cni_pod_requests_total{source="`); ok {
			source, count, _ := strings.Cut(strings.TrimSpace(rest), `"} `)
			counts[source], err = strconv.Atoi(count)
			lab.Check(t, err)
		}
	}
	return counts
}
