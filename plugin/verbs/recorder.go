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

// recorder collects the record of one ADD while the ADD runs.
type recorder struct {
	record.Record
	lapBegan time.Time
}

func newRecorder(sandbox string) *recorder {
	now := time.Now()
	return &recorder{record.Record{Time: now.UTC(), Sandbox: sandbox, Trace: record.TraceOf(os.Getenv("TRACEPARENT"))}, now}
}

// lap adds the time since the previous call of lap, or since newRecorder, to the duration of a stage.
func (r *recorder) lap(stage record.Stage) {
	now := time.Now()
	r.AddDuration(stage, now.Sub(r.lapBegan))
	r.lapBegan = now
}

func (r *recorder) passed(reason capture.Reason, message string) {
	r.Verdict, r.Reason, r.Message = record.Passed, reason, message
}

// failed replaces the record's verdict by that of a failure with this error.
func (r *recorder) failed(err error) {
	f := classify(err)
	r.Verdict, r.Reason, r.Code, r.Message = record.Failed, f.reason, f.code, f.message()
}

// send sends the record to the agent. If no agent receives the record of a failed ADD, send writes it
// to the spool, a directory. It does nothing if there is no socket, if the socket is outside the allowed
// directories, which a user of a namespace can choose with Multus, and in the agent's own test call.
func (r *recorder) send(send func(string, record.Record) bool, socket string, err error) {
	if err != nil {
		r.failed(err)
	}
	if r.Sandbox == record.Canary || socket == "" ||
		trust.CheckPath("agentSocket", socket) != nil || send(socket, r.Record) || err == nil {
		return
	}
	spool := record.Spool(socket)
	if socket == config.Default().AgentSocket { // the agent itself creates any other directory
		_ = os.MkdirAll(spool, 0o700)
	}
	record.Keep(spool, r.Record)
}
