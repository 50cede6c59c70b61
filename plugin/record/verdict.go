// SPDX-License-Identifier: Apache-2.0

package record

// Verdict is the result of an ADD, or of the guard's examination, for the pod. Package telemetry
// defines the guard's verdicts.
type Verdict string

const (
	Captured Verdict = "captured"
	Passed   Verdict = "passed" // intentionally not captured
	Failed   Verdict = "failed"
)

// Stage is a part of an ADD.
type Stage string

const (
	Deciding   Stage = "decide"
	LookingUp  Stage = "lookup"
	Committing Stage = "apply"
)
