// SPDX-License-Identifier: Apache-2.0

package main

// gateMutants break what operators wait for, and check by: status, precheck and test.
var gateMutants = []mutant{
	{
		name: "annotation-on-a-running-pod-turns-the-fleet-red",
		file: "deploy/fleet/fleet.go",
		from: "state.IsMissing() && state != terms.InjectedLater {",
		to:   "state.IsMissing() {",
		by:   by(quick, "deploy/kubectl-capture_cni", "TestEditedPodIsShown"),
	},
}
