// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"errors"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podlookup"
	"github.com/capture-cni/capture-cni/plugin/podnet"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// Codes of our own; CNI leaves 100 and above to plugins.
const (
	codeBadAnnotation uint = 100
	codeRefused       uint = 101
)

// failure is an error with the code that the runtime gets and the reason that the
// record names.
type failure struct {
	error
	code   uint
	reason record.Reason
}

// classify is the one place where errors get their code and their reason.
func classify(err error) failure {
	if f, ok := errors.AsType[failure](err); ok {
		return f
	}
	switch {
	case isA[config.Faults](err) || isA[podlookup.Untrusted](err):
		return failure{err, types.ErrInvalidNetworkConfig, record.Configuration}
	case isA[podlookup.Error](err):
		return failure{err, types.ErrTryAgainLater, record.Lookup}
	case isA[capture.BadInput](err):
		return failure{err, codeBadAnnotation, record.Annotations}
	case isA[capture.Refusal](err):
		return failure{err, codeRefused, record.Refused}
	case errors.Is(err, podnet.ErrGone):
		return failure{err, types.ErrUnknownContainer, record.Gone}
	}
	return failure{err, types.ErrInternal, record.Kernel}
}

// cniError returns what skel prints; an error of skel's own has its code.
func cniError(err error) *types.Error {
	if own, ok := errors.AsType[*types.Error](err); ok {
		return own
	}
	f := classify(err)
	return types.NewError(f.code, f.message(), "")
}

// coded gives an error its code before skel sees it, which would make it 999.
func coded(err error) error {
	if err == nil {
		return nil
	}
	return cniError(err)
}

// maxMessage bounds what a runtime logs and a kubelet makes an Event of: a
// server's answer can be part of it.
const maxMessage = 16 << 10

func (f failure) message() string {
	text := f.Error()
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage], "") + "… (cut at " + strconv.Itoa(maxMessage) + " bytes)"
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
