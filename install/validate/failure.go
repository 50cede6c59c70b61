// SPDX-License-Identifier: Apache-2.0

package validate

// Exit statuses. 1 is for wrong flags and the like, and 126 is left to Istio's
// own validation.
const (
	CodeOutbound  = 10 // what the pod sends is not captured
	CodeInbound   = 11 // what is sent to the pod is not captured
	CodePortInUse = 12 // somebody, probably the proxy, listens there already
	CodeNotTried  = 13 // no connection could be tried: no address, no route
)

// Failure is an answer other than yes.
type Failure struct {
	Code int
	err  error
}

func (f *Failure) Error() string { return f.err.Error() }
func (f *Failure) Unwrap() error { return f.err }

// ExitCode is the exit status of the command.
func (f *Failure) ExitCode() int { return f.Code }
