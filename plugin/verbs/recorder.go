// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"os"
	"time"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/record"
	"github.com/capture-cni/capture-cni/plugin/trust"
)

// recorder fills in the record of one call while the call proceeds.
type recorder struct {
	record.Record
	lapBegan time.Time
}

func newRecorder(sandbox string) *recorder {
	now := time.Now()
	return &recorder{record.Record{Time: now.UTC(), Sandbox: sandbox}, now}
}

// lap adds the time since the previous lap to a stage.
func (r *recorder) lap(stage record.Stage) {
	now := time.Now()
	r.AddDuration(stage, now.Sub(r.lapBegan))
	r.lapBegan = now
}

func (r *recorder) passed(reason capture.Reason, message string) {
	r.Verdict, r.Reason, r.Message = record.Passed, reason, message
}

// failed replaces the verdict that was recorded before.
func (r *recorder) failed(err error) {
	f := classify(err)
	r.Verdict, r.Reason, r.Code, r.Message = record.Failed, f.reason, f.code, f.message()
}

// send sends the record to the agent. The record of a failure that no agent
// receives goes to the spool. A socket outside the allowed directories is ignored:
// with Multus, a user of a namespace may have chosen it.
func (r *recorder) send(socket string, err error) {
	if err != nil {
		r.failed(err)
	}
	if r.Sandbox == record.Canary || socket == "" ||
		trust.CheckPath("agentSocket", socket) != nil || record.Send(socket, r.Record) || err == nil {
		return
	}
	spool := record.Spool(socket)
	if socket == config.Default().AgentSocket { // the agent creates any other directory
		_ = os.MkdirAll(spool, 0o700)
	}
	record.Keep(spool, r.Record)
}
