// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/spf13/pflag"

	"github.com/capture-cni/capture-cni/install/keeper"
	"github.com/capture-cni/capture-cni/install/taint"
)

// untaint are the flags of the taint with which the node was registered.
type untaint struct {
	key    string
	kernel bool
}

func (u *untaint) declare(flags *pflag.FlagSet) {
	flags.StringVar(&u.key, "untaint", "", "key of the taint to remove once the node captures pods, e.g. capture-cni.io/not-ready; empty: none")
	flags.BoolVar(&u.kernel, "canary-kernel", false, "with --untaint: also test the kernel first, which needs SYS_ADMIN and NET_ADMIN")
}

// tasks returns the task that removes the taint once the node captures pods. It calls
// the plugin for the agent's own pod.
func (u untaint) tasks(o *options, keeper *keeper.Keeper, log *slog.Logger) ([]task, error) {
	if u.key == "" {
		return nil, nil
	}
	pod := ownPod()
	if o.nodeName == "" || pod.Namespace == "" || pod.Name == "" {
		return nil, errors.New("--untaint needs --node-name, and the agent's own pod in POD_NAMESPACE, POD_NAME and POD_UID")
	}
	api, _, err := o.api()
	if err != nil {
		return nil, err
	}
	ready := func(ctx context.Context) error { return keeper.Accepts(ctx, pod, u.kernel) }
	return []task{untilEnd(taint.NewRemover(api, o.nodeName, u.key, ready, keeper.SetTainted, log).Run)}, nil
}
