// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// Codes of our own; CNI leaves 100 and above to plugins.
const (
	codeBadAnnotation uint = 100
	codeRefused       uint = 101
)

// asCNIError is the one place where errors get their code.
func asCNIError(err error) *types.Error {
	if cniError, ok := errors.AsType[*types.Error](err); ok {
		return cniError
	}
	code := types.ErrInternal
	switch {
	case isA[config.Faults](err):
		code = types.ErrInvalidNetworkConfig
	case isA[untrusted](err):
		code = types.ErrInvalidNetworkConfig
	case isA[lookupError](err):
		code = types.ErrTryAgainLater
	case isA[capture.BadInput](err):
		code = codeBadAnnotation
	case isA[capture.Refusal](err):
		code = codeRefused
	case errors.Is(err, podnet.ErrGone):
		code = types.ErrUnknownContainer
	}
	return types.NewError(code, cut(err.Error()), "")
}

// maxMessage bounds what a runtime logs and a kubelet makes an Event of: a
// server's answer can be part of it.
const maxMessage = 16 << 10

func cut(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage], "") + "… (cut at " + strconv.Itoa(maxMessage) + " bytes)"
}

// coded gives an error its code before skel sees it, which would make it 999.
func coded(err error) error {
	if err == nil {
		return nil
	}
	return asCNIError(err)
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func writeJSON(w io.Writer, value any) error {
	document, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	if _, err := w.Write(append(document, '\n')); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}
