// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/report"
)

// story is the record of one call, written while it happens.
type story struct {
	report.Record
	lapBegan time.Time
}

func newStory(sandbox string) *story {
	now := time.Now()
	return &story{report.Record{Time: now, Sandbox: sandbox}, now}
}

func (s *story) isOf(pod podIdentity) {
	s.Pod = report.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
}

// lap counts the time since the last one for a stage.
func (s *story) lap(stage report.Stage) {
	now := time.Now()
	s.Took(stage, now.Sub(s.lapBegan))
	s.lapBegan = now
}

func (s *story) passed(reason report.Reason, message string) {
	s.Verdict, s.Reason, s.Message = report.Passed, reason, message
}

// failed is the last word, whatever was said before.
func (s *story) failed(err error) {
	failure := asCNIError(err)
	s.Verdict, s.Reason, s.Code, s.Message = report.Failed, failedBy(failure.Code), failure.Code, failure.Msg
}

// failedBy gives the reason behind a code.
func failedBy(code uint) report.Reason {
	switch code {
	case types.ErrInvalidEnvironmentVariables, types.ErrDecodingFailure:
		return report.Input
	case types.ErrInvalidNetworkConfig:
		return report.Configuration
	case types.ErrTryAgainLater:
		return report.Lookup
	case codeBadAnnotation:
		return report.Annotations
	case codeRefused:
		return report.Refused
	case types.ErrUnknownContainer:
		return report.Gone
	}
	return report.Kernel
}

// tell sends the record to the agent, and keeps that of a failure for an agent
// that does not listen yet. A socket outside of the allowed directories gets
// nothing: root must not write where a pod's author pointed it to.
func (s *story) tell(socket string, err error) {
	if err != nil {
		s.failed(err)
	}
	if socket == "" || trustPath("agentSocket", socket) != nil || report.Send(socket, s.Record) || err == nil {
		return
	}
	ring := report.Ring(socket)
	if socket == config.Default().AgentSocket { // elsewhere the agent makes the directory
		_ = os.MkdirAll(ring, 0o700)
	}
	report.Keep(ring, s.Record)
}
