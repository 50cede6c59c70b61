// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const captureReady corev1.NodeConditionType = "CaptureReady"

// ConditionWriter writes the condition CaptureReady of one node.
type ConditionWriter struct {
	api           *Client
	node          string
	begins, holds func(context.Context) error
	log           *slog.Logger

	written corev1.NodeCondition // the API server's copy; without a Type while it is unknown
	failing time.Time            // since when the node is not ready; zero while it is ready
	fault   string               // the last failure to write that was logged; "" after a success
}

// NewConditionWriter returns a ConditionWriter. It calls holds while the condition is true, and begins
// otherwise. The condition becomes true once the called function returns nil, and false once the
// function has returned errors for the time grace.
func NewConditionWriter(api *Client, node string, begins, holds func(context.Context) error, log *slog.Logger) *ConditionWriter {
	return &ConditionWriter{api: api, node: node, begins: begins, holds: holds, log: log}
}

// Run writes the condition until ctx ends. It does not remove the condition at its end.
func (w *ConditionWriter) Run(ctx context.Context) {
	for wait := firstPause; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		switch err := w.check(ctx, time.Now()); {
		case err != nil:
			wait = min(max(2*wait, interval), maxPause)
			if err.Error() != w.fault {
				w.fault = err.Error()
				w.log.Warn("writing the node's condition failed; retrying", "error", err)
			}
		case w.written.Status == corev1.ConditionTrue:
			wait, w.fault = interval, ""
		default:
			wait, w.fault = maxTaintPause, ""
		}
	}
}

// check writes the condition if its status or its message has changed, or if its heartbeat is due. A
// fault changes the condition only after the time grace.
func (w *ConditionWriter) check(ctx context.Context, now time.Time) error {
	if w.written.Type == "" {
		// The answer to an empty patch contains the Node, so the condition needs no permission to get Nodes,
		// which RBAC can't limit to the agent's own Node.
		node, err := w.patch(ctx, map[string]any{})
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == captureReady }); i >= 0 {
			w.written = node.Status.Conditions[i]
		}
		w.written.Type = captureReady
	}
	next := corev1.NodeCondition{
		Type: captureReady, Status: corev1.ConditionTrue, Reason: "EntryLoaded", Message: "the pods of the mesh that start now are captured",
		LastHeartbeatTime: metav1.NewTime(now), LastTransitionTime: w.written.LastTransitionTime,
	}
	ready := w.begins
	if w.written.Status == corev1.ConditionTrue {
		ready = w.holds
	}
	switch err := ready(ctx); {
	case ctx.Err() != nil:
		return nil
	case err == nil:
		w.failing = time.Time{}
	case w.failing.IsZero():
		w.failing = now
		return nil
	case now.Sub(w.failing) < grace: // a new agent or a repair may need this time
		return nil
	default:
		next.Status, next.Reason, next.Message = corev1.ConditionFalse, "NotReady", cut(err.Error())
	}
	if next.Status != w.written.Status {
		next.LastTransitionTime = next.LastHeartbeatTime
	} else if next.Message == w.written.Message && now.Sub(w.written.LastHeartbeatTime.Time).Abs() < heartbeat {
		return nil
	}
	_, err := w.patch(ctx, map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{next}}})
	if err == nil {
		w.written = next
	}
	return err
}

// maxCondition limits the bytes of the condition's message.
const maxCondition = 1 << 10

func cut(message string) string {
	return strings.ToValidUTF8(message[:min(len(message), maxCondition)], "")
}

// patch changes the Node's status. The API server merges the status's conditions by type, so conditions
// of other types stay.
func (w *ConditionWriter) patch(ctx context.Context, change map[string]any) (*corev1.Node, error) {
	node := &corev1.Node{}
	document, err := json.Marshal(change)
	if err == nil {
		request := w.api.rest.Patch(types.StrategicMergePatchType).Resource("nodes").SubResource("status").Name(w.node)
		err = do(ctx, request.Body(document)).Into(node)
	}
	if err != nil {
		return nil, fmt.Errorf("patching the status of node %s: %w", w.node, err)
	}
	return node, nil
}
