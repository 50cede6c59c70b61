// SPDX-License-Identifier: Apache-2.0

package settings

import "testing"

// TestSockets expects the agent to see the entry's sockets below its root, and none of an
// empty key.
func TestSockets(t *testing.T) {
	t.Parallel()
	s := Default("/host")
	for socket, want := range map[string][3]string{
		"":              {},
		"/a/agent.sock": {"/host/a/agent.sock", "/host/a/sockets/pods.sock", "/host/a/sockets/agent.sock"},
	} {
		s.Entry.Conf.AgentSocket = socket
		if got := [3]string{s.AgentSocket(), s.PodsSocket(), s.GuardSocket()}; got != want {
			t.Errorf("%q: got %q, want %q", socket, got, want)
		}
	}
}
