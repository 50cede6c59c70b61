// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"path/filepath"
	"testing"
)

// TestReportTo names the socket only where the plugin would not find it by itself.
func TestReportTo(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ runDir, netConf, want string }{
		{"/run/capture-cni", "", ""},
		{"/run/capture-cni", `{"ipv6": "never"}`, `{"ipv6": "never"}`},
		{"/run/other", "", `{"agentSocket":"/run/other/agent.sock"}`},
		{"/run/other", " {} \n", `{"agentSocket":"/run/other/agent.sock"}`},
		{"/run/other", `{"ipv6": "never"}`, `{"agentSocket":"/run/other/agent.sock","ipv6": "never"}`},
		{"/run/other", `{"agentSocket": ""}`, `{"agentSocket": ""}`},
		{"/run/other", `[`, `[`},
	} {
		if got := string(ReportTo(test.runDir, []byte(test.netConf))); got != test.want {
			t.Errorf("%s, %s: got %s, want %s", test.runDir, test.netConf, got, test.want)
		}
	}
}

// TestAgentSocket is where the agent sees what the plugin is told.
func TestAgentSocket(t *testing.T) {
	t.Parallel()
	for netConf, want := range map[string]string{
		"": "/host/run/capture-cni/agent.sock", `{"agentSocket": ""}`: "", `{"agentSocket": "/a/agent.sock"}`: "/host/a/agent.sock",
	} {
		got, err := Settings{Root: "/host", StateDir: "/state", NetConf: []byte(netConf)}.AgentSocket()
		if err != nil || got != want {
			t.Errorf("%s: got %q, %v", netConf, got, err)
		}
	}
	if _, err := (Settings{StateDir: "/state", NetConf: []byte(`{"agentSocket": 5}`)}).AgentSocket(); err == nil {
		t.Error("a bad configuration is no error")
	}
}

// TestRemoveReports leaves nothing of what plugin, agent and guard kept.
func TestRemoveReports(t *testing.T) {
	t.Parallel()
	settings := Settings{Root: t.TempDir(), RunDir: "/run/capture-cni"}
	for _, path := range []string{settings.GuardMemory() + "/web", settings.at("/run/capture-cni/adds/1.json")} {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := (&Node{settings: settings}).removeReports(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(settings.at("/run/capture-cni")); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}
