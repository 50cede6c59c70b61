// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"os"
	"time"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/podlookup"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// recorder is the record of one call, written while it happens.
type recorder struct {
	record.Record
	lapBegan time.Time
}

func newRecorder(sandbox string) *recorder {
	now := time.Now()
	return &recorder{record.Record{Time: now, Sandbox: sandbox}, now}
}

// lap counts the time since the last one for a stage.
func (r *recorder) lap(stage record.Stage) {
	now := time.Now()
	r.AddDuration(stage, now.Sub(r.lapBegan))
	r.lapBegan = now
}

func (r *recorder) passed(reason record.Reason, message string) {
	r.Verdict, r.Reason, r.Message = record.Passed, reason, message
}

// failed is the last word, whatever was recorded before.
func (r *recorder) failed(err error) {
	f := classify(err)
	r.Verdict, r.Reason, r.Code, r.Message = record.Failed, f.reason, f.code, f.message()
}

// tell sends the record to the agent, and keeps that of a failure for an agent
// that does not listen yet. A socket outside of the allowed directories gets
// nothing: root must not write where a pod's author pointed it to.
func (r *recorder) tell(socket string, err error) {
	if err != nil {
		r.failed(err)
	}
	if socket == "" || podlookup.TrustPath("agentSocket", socket) != nil || record.Send(socket, r.Record) || err == nil {
		return
	}
	spool := record.Spool(socket)
	if socket == config.Default().AgentSocket { // elsewhere the agent makes the directory
		_ = os.MkdirAll(spool, 0o700)
	}
	record.Keep(spool, r.Record)
}
