// SPDX-License-Identifier: Apache-2.0

package main

// serverMutants break what the agent answers, and what it does at the API server.
var serverMutants = []mutant{
	{
		name: "any-user-reads-pods-from-the-agent",
		file: "install/pods/server.go",
		from: "err != nil || uid != os.Geteuid()",
		to:   "err != nil || uid != os.Geteuid() && uid < 0",
		by:   by(root, "install/pods", "TestOtherUser"),
	},
	{
		name: "socket-in-a-directory-of-others",
		file: "install/socket/socket.go",
		from: "info, 0o022)",
		to:   "info, 0)",
		by:   by(root, "install/socket", "TestDirectory"),
	},
	{
		name: "taint-of-another-program-is-removed",
		file: "install/kube/taints.go",
		from: `patch = append(patch, operation{"test", path + "/key", key}, operation{"remove", path, ""})`,
		to:   `patch = append(patch, operation{"remove", path, ""})`,
		by:   by(unit, "install/taint", "TestConflict"),
	},
	{
		name: "drop-in-is-tried-where-none-is-loaded",
		file: "install/node/decide.go",
		from: "net.Runtime.IsCRIO() || net.Runtime.IgnoresDropIns()",
		to:   "net.Runtime.Name == \"\"",
		by:   by(root, "e2e/agent", "TestAutoWithoutTrial"),
	},
}
