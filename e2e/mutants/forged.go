// SPDX-License-Identifier: Apache-2.0

package main

// forgedMutants let something pose as what it is not, stall the product or forge what it
// says.
var forgedMutants = []mutant{
	{
		name: "pod-with-the-labels-of-agents-is-one",
		file: "deploy/fleet/agent.go",
		from: "owner == nil || !r.daemonSets[owner.UID]",
		to:   "owner == nil",
		by:   by(quick, "deploy/fleet", "TestPosersAreListed"),
	},
	{
		name: "negative-count-of-one-node-hides-another",
		file: "install/nodestate/check.go",
		from: " || count < 0",
		to:   "",
		by:   by(quick, "install/nodestate", "TestForged"),
	},
	{
		name: "test-deletes-a-namespace-with-its-labels",
		file: "deploy/capturetest/place.go",
		from: " || !nameForm.MatchString(left.meta.Name)",
		to:   "",
		by:   by(quick, "deploy/capturetest", "TestLeftovers"),
	},
}
