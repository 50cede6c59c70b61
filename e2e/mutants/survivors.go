// SPDX-License-Identifier: Apache-2.0

package main

// survivorMutants were noticed by no test when another team tried them.
var survivorMutants = []mutant{
	{
		name: "label-of-selinux-is-lost",
		file: "install/host/replace.go",
		from: "return errors.Join(file.Chmod(perm), copyLabel(old, file))",
		to:   "return file.Chmod(perm)",
		by:   by(root, "install/host", "TestMetadata"),
	},
	{
		name: "canary-tries-one-directory",
		file: "install/node/canary.go",
		from: "range n.Settings.BinDirs {",
		to:   "range n.Settings.BinDirs[:1] {",
		by:   by(unit, "install/node", "TestCanary"),
	},
	{
		name: "credentials-go-before-the-entry",
		file: "install/node/clean.go",
		from: "\tif err == nil {\n\t\terr = n.removeFiles(s.CredentialDirs(), credentials.Names()...)",
		to:   "\t{\n\t\terr = errors.Join(err, n.removeFiles(s.CredentialDirs(), credentials.Names()...))",
		by:   by(root, "install/node", "TestCleanKeepsTheOrder"),
	},
	{
		name: "list-of-a-json-file-stays",
		file: "install/entry/insert.go",
		from: "range []string{\".conf\", \".json\"} {",
		to:   "range []string{\".conf\"} {",
		by:   by(unit, "install/entry", "TestRemoveFindsAll"),
	},
	{
		name: "memory-limit-is-the-containers",
		file: "install/capture-cni-node/memory.go",
		from: "containerMemory(root) / 2",
		to:   "containerMemory(root)",
		by:   by(quick, "install/capture-cni-node", "TestLimitMemory"),
	},
	{
		name: "same-socket-counts-twice",
		file: "install/cri/search.go",
		from: "return os.SameFile(other, info)",
		to:   "return false",
		by:   by(unit, "install/cri", "TestSearch"),
	},
	{
		name: "retries-do-not-slow-down",
		file: "plugin/lookup/lookup.go",
		from: "backoff(min(2*pause, maxBackoff))",
		to:   "backoff(pause)",
		by:   by(quick, "plugin/lookup", "TestBackoff"),
	},
	{
		name: "overloaded-server-is-asked-at-once",
		file: "plugin/lookup/lookup.go",
		from: "return max(pause/2+rand.N(pause), asked)",
		to:   "return pause/2 + rand.N(pause)",
		by:   by(quick, "plugin/lookup", "TestBackoff"),
	},
	{
		name: "canceled-attempt-hides-the-cause",
		file: "plugin/lookup/lookup.go",
		from: "if last.isNone() || ctx.Err() == nil {",
		to:   "if last.isNone() || ctx.Err() != nil || ctx.Err() == nil {",
		by:   by(quick, "plugin/lookup", "TestCause"),
	},
	{
		name: "lock-takes-all-time-of-a-del",
		file: "plugin/verbs/verbs.go",
		from: "context.WithTimeout(ctx, delTimeout/2)",
		to:   "context.WithTimeout(ctx, delTimeout)",
		by:   by(root, "e2e/protocol", "TestLockOutlivesDEL"),
	},
	{
		name: "file-capability-makes-the-proxy",
		file: "deploy/chart/templates/admission/identity.yaml",
		from: "['ALL', 'SETUID', 'SETGID', 'SETFCAP']",
		to:   "['ALL', 'SETUID', 'SETGID']",
		by:   admission("TestAdmission/lists/identity_SETFCAP"),
	},
	{
		name: "proxy-mounts-a-block-device",
		file: "deploy/chart/templates/admission/proxy.yaml",
		from: "c.?volumeDevices.orValue([]).map(d, d.devicePath)",
		to:   "[]",
		by:   admission("TestAdmission/lists/proxy_a_device"),
	},
	{
		name: "label-is-removed-after-admission",
		file: "deploy/chart/templates/admission/changes.yaml",
		from: "variables.oldLabels.filter(key, !(key in variables.labels))",
		to:   "variables.oldLabels.filter(key, false)",
		by:   admission("TestAdmission/final"),
	},
}
