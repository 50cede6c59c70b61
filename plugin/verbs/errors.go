// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"errors"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
	"github.com/capture-cni/capture-cni/plugin/podnet"
	"github.com/capture-cni/capture-cni/plugin/trust"
)

// Codes of errors that the CNI specification does not define. CNI reserves the codes below 100.
const (
	codeBadAnnotation uint = 100
	codeRefused       uint = 101
)

// failure is an error with a CNI code for the runtime, and a reason for the record.
type failure struct {
	error
	code   uint
	reason capture.Reason
}

// classify returns the CNI code and the reason of an error.
func classify(err error) failure {
	if f, ok := errors.AsType[failure](err); ok {
		return f
	}
	switch {
	case isA[config.Faults](err) || isA[trust.Untrusted](err):
		return failure{err, types.ErrInvalidNetworkConfig, capture.ReasonConfiguration}
	case isA[lookup.Error](err):
		return failure{err, types.ErrTryAgainLater, capture.ReasonLookup}
	case isA[capture.BadInput](err):
		return failure{err, codeBadAnnotation, capture.ReasonAnnotations}
	case isA[capture.Refusal](err):
		return failure{err, codeRefused, capture.ReasonRefused}
	case errors.Is(err, podnet.ErrGone):
		return failure{err, types.ErrUnknownContainer, capture.ReasonGone}
	}
	return failure{err, types.ErrInternal, capture.ReasonKernel}
}

// cniError returns the error that the runtime reads. A CNI error, such as one of skel, keeps its own code.
func cniError(err error) *types.Error {
	if own, ok := errors.AsType[*types.Error](err); ok {
		return own
	}
	f := classify(err)
	return types.NewError(f.code, f.message(), "")
}

// withCode returns a CNI error with err's code, or nil if err is nil. For an error of another type,
// skel would use the code 999.
func withCode(err error) error {
	if err == nil {
		return nil
	}
	return cniError(err)
}

// maxMessage limits the bytes of the message that the runtime logs and the kubelet writes into an
// Event, because the message can contain a server's response.
const maxMessage = 16 << 10

func (f failure) message() string {
	text := podnet.Explained(f).Error()
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage], "") + "… (cut at " + strconv.Itoa(maxMessage) + " bytes)"
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
