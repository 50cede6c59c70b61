// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestRecorded replays recorded calls of containerd and CRI-O. The cluster's tests
// compare them with those that the runtimes send today.
func TestRecorded(t *testing.T) {
	containerd := []string{"meshed.add", "unmeshed.add", "static.add", "meshed.del", "meshed.late.del"} // the late DEL has no CNI_NETNS
	crio := []string{"meshed.add", "unmeshed.add", "static.add", "meshed.check", "meshed.del"}
	for runtime, files := range map[string][]string{
		"containerd-1.6": containerd,
		"containerd-2":   containerd,
		"cri-o-1":        crio,
	} {
		t.Run(runtime, func(t *testing.T) {
			for _, tt := range []struct {
				file     string
				captured bool
				requests int
			}{
				{"meshed.add", true, 1},
				{"unmeshed.add", false, 0},
				{"static.add", false, 0},
			} {
				if !slices.Contains(files, tt.file) {
					continue
				}
				n, host := newNode(t), sandbox(t)
				replay := func(file string) call {
					return readRecording(t, n, filepath.Join("testdata/recorded", runtime, file), host.Path())
				}
				replay(tt.file).run(t).succeeds(t)
				expectCaptured(t, host, tt.captured)
				if got := n.Requests(); got != tt.requests {
					t.Errorf("%s: %d API requests, want %d", tt.file, got, tt.requests)
				}
				for _, file := range files {
					if ofCaptured := strings.HasSuffix(file, ".check"); strings.HasSuffix(file, ".add") || ofCaptured && !tt.captured {
						continue
					}
					replay(file).run(t).silent(t)
				}
				expectCaptured(t, host, false)
			}
		})
	}
}

// readRecording returns a recorded call of another plugin as a call of ours.
func readRecording(t *testing.T, n node, file, netns string) call {
	t.Helper()
	content, err := os.ReadFile(file + ".json")
	lab.Check(t, err)
	var recorded struct {
		Environment map[string]string
		Stdin       map[string]any
	}
	lab.Check(t, json.Unmarshal(content, &recorded))
	recorded.Stdin["type"], recorded.Stdin["kubeconfig"] = "capture-cni", n.kubeconfig
	stdin, err := json.Marshal(recorded.Stdin)
	lab.Check(t, err)
	recordedNetNS := recorded.Environment["CNI_NETNS"]
	c := call{stdin: string(stdin), args: recorded.Environment["CNI_ARGS"], netns: netns}
	if recordedNetNS == "" {
		c.netns = ""
	} else {
		c.stdin = strings.ReplaceAll(c.stdin, recordedNetNS, netns)
	}
	for key, value := range recorded.Environment {
		if key != "CNI_NETNS" && key != "CNI_ARGS" {
			c.env = append(c.env, key+"="+value)
		}
	}
	return c
}
