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
		name: "credentials-go-before-the-entry",
		file: "install/node/clean.go",
		from: "\tif err == nil {\n\t\terr = n.removeFiles(s.CredentialDirs(), credentials.Names()...)",
		to:   "\t{\n\t\terr = errors.Join(err, n.removeFiles(s.CredentialDirs(), credentials.Names()...))",
		by:   by(root, "install/node", "TestCleanKeepsTheOrder"),
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
