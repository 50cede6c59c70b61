// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"

	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/credentials"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/kube"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// publish returns the task that publishes the state of the node and its pods in a Lease, or none if
// that is disabled or impossible.
func (a *agent) publish() []task {
	own, node := a.Credentials.Pod, a.Credentials.Node
	if !a.publishes || node == "" || own.Namespace == "" {
		return nil
	}
	api, access, err := a.api()
	if err != nil {
		a.log.Warn("no Lease is written", "error", err)
		return nil
	}
	settings := kube.LeaseSettings{
		Namespace: own.Namespace, Node: node, Holder: own.Name,
		NodeUID: func() string { return nodeUID(access, node) },
		State:   a.nodeState,
	}
	return []task{untilEnd(kube.NewLeaseWriter(settings, api, a.log).Run)}
}

// nodeState returns the state of the node, with the states of pods that the guard has written.
func (a *agent) nodeState(ctx context.Context) report.NodeState {
	found := a.keeper.CurrentReport(ctx)
	state := report.NodeState{
		Version: config.OwnVersion(), Mode: found.Mode, Backend: string(a.Entry.Conf.Backend), Desired: a.state,
		Findings: found.Findings, Pods: a.podStates(), PodVersion: capture.PodVersion,
	}
	if a.state == "absent" || a.BackendFault() != nil {
		state.Backend = ""
	}
	return state
}

// podStates returns the states of the pods, or nil while no guard reports them or they can't be read.
func (a *agent) podStates() *report.Pods {
	pods, err := guard.ReadSummary(a.GuardDirectory())
	if err == nil || errors.Is(err, os.ErrNotExist) {
		a.fault = ""
	} else if err.Error() != a.fault {
		a.log.Warn("the states of the pods are not published", "error", err)
		a.fault = err.Error()
	}
	if err != nil {
		return nil
	}
	return &pods
}

// nodeUID returns the UID of the agent's Node, if the agent's own token contains it, and otherwise "".
// It reads the token's file each time, because the kubelet renews the token.
func nodeUID(access *rest.Config, name string) string {
	token := access.BearerToken
	if access.BearerTokenFile != "" {
		content, err := os.ReadFile(access.BearerTokenFile)
		if err != nil {
			return ""
		}
		token = string(content)
	}
	return credentials.UIDByToken(token, name)
}
