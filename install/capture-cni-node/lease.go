// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/credentials"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/keeper"
	"github.com/capture-cni/capture-cni/install/lease"
	"github.com/capture-cni/capture-cni/install/nodestate"
	"github.com/capture-cni/capture-cni/install/settings"
)

// leaseFlags are the flags of the Lease in which the agent publishes the node's state.
type leaseFlags struct{ enabled bool }

func (l *leaseFlags) declare(flags *pflag.FlagSet) {
	flags.BoolVar(&l.enabled, "lease", true, "publish the node's state in a Lease of the agent's namespace (POD_NAMESPACE); needs --node-name and the permission to get, create and update Leases there")
}

// tasks returns the task that publishes the state of node and pods.
func (l leaseFlags) tasks(o *options, keeper *keeper.Keeper, s settings.Node, state string, log *slog.Logger) []task {
	own := ownPod()
	if !l.enabled || o.nodeName == "" || own.Namespace == "" {
		return nil
	}
	api, _, err := o.api()
	var access *rest.Config
	if err == nil {
		access, err = o.access()
	}
	if err != nil {
		log.Warn("no Lease is written", "error", err)
		return nil
	}
	p := publisher{keeper: keeper, desired: state, guardDirectory: s.GuardDirectory(), log: log}
	settings := lease.Settings{
		Namespace: own.Namespace, Node: o.nodeName, Holder: own.Name,
		NodeUID: func() string { return nodeUID(access, o.nodeName) },
		State:   p.state,
	}
	return []task{untilEnd(lease.New(settings, api, log).Run)}
}

// publisher joins what the agent knows of the node with what the guard knows of its pods.
type publisher struct {
	keeper         *keeper.Keeper
	desired        string // present or absent
	guardDirectory string
	log            *slog.Logger
	fault          string // the last one that was logged
}

func (p *publisher) state(ctx context.Context) nodestate.State {
	report := p.keeper.CurrentReport(ctx)
	state := nodestate.State{Version: config.OwnVersion(), Mode: report.Mode, Desired: p.desired, Pods: p.pods()}
	for _, f := range report.Findings {
		state.Findings = append(state.Findings, nodestate.Finding{Part: string(f.Part), Reason: f.Reason, Waiting: f.Waiting})
	}
	return state
}

// pods returns the states of the pods, nil while no guard reports them.
func (p *publisher) pods() *nodestate.Pods {
	pods, err := guard.ReadSummary(p.guardDirectory)
	if err == nil || errors.Is(err, os.ErrNotExist) {
		p.fault = ""
	} else if err.Error() != p.fault {
		p.log.Warn("the states of the pods are not published", "error", err)
		p.fault = err.Error()
	}
	if err != nil {
		return nil
	}
	return &pods
}

// nodeUID returns the UID of the agent's Node as the agent's own token names it, "" if it
// does not. The kubelet renews that file.
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
