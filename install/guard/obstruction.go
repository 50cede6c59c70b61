// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// obstructed is what was found of a pod, or that another table could keep
// packets from its rules. That is reported and never repaired: the table belongs
// to the pod. Rules of iptables are in tables that they share with others.
func obstructed(ctx context.Context, netns *podnet.Namespace, backend config.Backend, found Finding) Finding {
	switch found.State {
	case Captured, Changed, Outdated:
	default:
		return found
	}
	if backend != config.NFTables {
		return found
	}
	obstruction, err := netns.Obstruction(ctx)
	if _, tooLarge := errors.AsType[podnet.TooLarge](err); tooLarge {
		obstruction, err = err.Error()+" in tables in front of our rules: they are not read", nil
	}
	switch {
	case err != nil:
		return Finding{State: Unknown, Reason: err.Error()}
	case obstruction == "":
		return found
	case found.Reason != "":
		obstruction += "; besides, " + found.Reason
	}
	return Finding{State: Obstructed, Reason: obstruction}
}
