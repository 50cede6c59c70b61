// SPDX-License-Identifier: Apache-2.0

package validate

// Exit statuses. Status 1 is for all other errors, such as wrong flags; 126 is
// that of Istio's own validation.
const (
	CodeOutbound  = 10 // outbound traffic is not captured
	CodeInbound   = 11 // inbound traffic is not captured
	CodePortInUse = 12 // another process, probably the proxy, has the port
	CodeNotTried  = 13 // unknown: the pod has no address or no route
)

// Failure is the error of a run that did not prove capture.
type Failure struct {
	Code int
	err  error
}

func (f *Failure) Error() string { return f.err.Error() }
func (f *Failure) Unwrap() error { return f.err }

// ExitCode returns the exit status of the command.
func (f *Failure) ExitCode() int { return f.Code }
