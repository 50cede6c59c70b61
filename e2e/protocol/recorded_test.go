// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRecorded sends what containerd sent on a real node: the tests of the
// cluster compare the recordings with what it sends today.
func TestRecorded(t *testing.T) {
	runtimes, err := filepath.Glob("testdata/recorded/*")
	if err != nil || len(runtimes) < 2 {
		t.Fatalf("recordings: %q, %v", runtimes, err)
	}
	for _, runtime := range runtimes {
		t.Run(filepath.Base(runtime), func(t *testing.T) {
			for _, tt := range []struct {
				file     string
				captured bool
				requests int
			}{
				{"meshed.add", true, 1},
				{"unmeshed.add", false, 0},
				{"static.add", false, 0},
			} {
				n, host := newNode(t), sandbox(t)
				readRecording(t, n, filepath.Join(runtime, tt.file), host.Path()).run(t).succeeds(t)
				expectCaptured(t, host, tt.captured)
				if got := n.Requests(); got != tt.requests {
					t.Errorf("%s: %d API requests, want %d", tt.file, got, tt.requests)
				}
				for _, file := range []string{"meshed.del", "meshed.late.del"} { // the late one names no namespace
					readRecording(t, n, filepath.Join(runtime, file), host.Path()).run(t).silent(t)
				}
				expectCaptured(t, host, false)
			}
		})
	}
}

// readRecording makes a call of the plugin from one of another plugin's.
func readRecording(t *testing.T, n node, file, netns string) call {
	t.Helper()
	content, err := os.ReadFile(file + ".json")
	check(t, err)
	var recorded struct {
		Environment map[string]string
		Stdin       map[string]any
	}
	check(t, json.Unmarshal(content, &recorded))
	recorded.Stdin["type"], recorded.Stdin["kubeconfig"] = "capture-cni", n.kubeconfig
	stdin, err := json.Marshal(recorded.Stdin)
	check(t, err)
	then := recorded.Environment["CNI_NETNS"]
	c := call{stdin: string(stdin), args: recorded.Environment["CNI_ARGS"], netns: netns}
	if then == "" {
		c.netns = ""
	} else {
		c.stdin = strings.ReplaceAll(c.stdin, then, netns)
	}
	for key, value := range recorded.Environment {
		if key != "CNI_NETNS" && key != "CNI_ARGS" {
			c.env = append(c.env, key+"="+value)
		}
	}
	return c
}
