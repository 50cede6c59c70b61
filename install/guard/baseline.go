// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"fmt"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/history"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podnet"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// baseline is what ADD or a repair left in a sandbox's network namespace. Rules
// that differ from it were changed by neither.
type baseline struct {
	Stamp   string         `json:"stamp"` // empty for an unknown baseline
	Backend config.Backend `json:"backend"`
	Digest  string         `json:"digest,omitempty"` // of the rules; empty until they were read
	// Unconfirmed is a baseline that was there at the first look, of another
	// version or configuration, and of which no record of an ADD speaks.
	Unconfirmed bool `json:"unconfirmed,omitempty"`
}

func (b baseline) isKnown() bool { return b.Stamp != "" }

// confirm replaces a baseline that nothing confirms by what the plugin reported
// of its ADD for the sandbox. The agent may write that record after the guard's
// first look.
func (b *baseline) confirm(socket string, sandbox cri.Sandbox) {
	if b.isKnown() && !b.Unconfirmed || socket == "" {
		return
	}
	add, err := history.Last(history.Directory(socket), sandbox.UID)
	if err != nil || add.Sandbox != sandbox.ID || add.Verdict != record.Captured || !capture.IsStamp(add.Stamp) {
		return
	}
	if b.Stamp != add.Stamp {
		*b = baseline{Stamp: add.Stamp, Backend: config.Backend(add.Backend)}
	}
	b.Unconfirmed = false
}

// adopt makes the baseline what the namespace holds now.
func (b *baseline) adopt(ctx context.Context, netns *podnet.Namespace, state podnet.State) error {
	digest, err := netns.Digest(ctx, state.Backend)
	if err != nil {
		return err
	}
	*b = baseline{Stamp: state.Stamp, Backend: state.Backend, Digest: digest}
	return nil
}

// holds reports whether the baseline is complete, and is of this state.
func (b baseline) holds(state podnet.State) bool {
	return b.Stamp == state.Stamp && b.Backend == state.Backend && podnet.Comparable(b.Digest) && !b.Unconfirmed
}

// judgeOutdated compares rules of another version, which the guard can't make,
// with the baseline. At the first look they become it.
func (b *baseline) judgeOutdated(ctx context.Context, netns *podnet.Namespace, state podnet.State) Finding {
	if b.isKnown() && b.Stamp != state.Stamp {
		return Finding{State: Drifted, Reason: fmt.Sprintf("its rules say that they are %q, and it was captured by %q", state.Stamp, b.Stamp)}
	}
	now := *b
	if err := now.adopt(ctx, netns, state); err != nil {
		return unreadable(err)
	}
	if podnet.Comparable(b.Digest) && b.Digest != now.Digest {
		return Finding{State: Drifted, Reason: "its rules are those of another version or configuration and were changed: " + state.Stamp}
	}
	now.Unconfirmed = !b.isKnown() || b.Unconfirmed
	*b = now
	return Finding{State: Outdated, Reason: "its rules are those of another version or configuration: " + state.Stamp}
}
