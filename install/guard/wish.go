// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"net/netip"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/podlookup"
)

// wish is what a pod's namespace is to hold, by what the pod said when it was
// made: what is edited later must not loosen the capture of a pod that runs.
type wish struct {
	read      time.Time // zero before the pod was read
	exemption capture.Exemption
	intent    packed
	stamp     string // of the rules
	changed   bool   // the pod now says something else
	owned     bool   // a controller would make another pod in its place
}

// refresh reads the pod if it is time; nil is as before.
func (w *wish) refresh(ctx context.Context, pods Pods, sandbox cri.Sandbox, every time.Duration) (*corev1.Pod, error) {
	known := !w.read.IsZero()
	if known && time.Since(w.read) < every {
		return nil, nil
	}
	pod, err := pods.Pod(ctx, refOf(sandbox))
	if err != nil && known && !podlookup.IsGone(err) {
		return nil, nil // what it was to be is known
	}
	return pod, err
}

// decide spells out what a pod, as it is now, was to hold from the beginning.
func (w *wish) decide(now *corev1.Pod, sandbox cri.Sandbox, settings config.Settings, addresses func() ([]netip.Addr, error)) error {
	addresses = sync.OnceValues(addresses) // the same for both decisions
	decision, err := capture.Decide(asMade(now, sandbox), settings, addresses)
	if err != nil {
		return err
	}
	fresh := wish{read: time.Now(), exemption: decision.Exemption, owned: isOwned(now)}
	if fresh.exemption.Cause == "" {
		fresh.stamp = capture.Rules(decision.Intent).Stamp()
		edited, err := capture.Decide(capture.PodOf(now), settings, addresses)
		fresh.changed = err != nil || !reflect.DeepEqual(edited.Intent, decision.Intent)
		if fresh.intent, err = pack(decision.Intent); err != nil {
			return err
		}
	}
	*w = fresh
	return nil
}

func (w wish) rules() capture.Ruleset { return capture.Rules(w.intent.unpack()) }

// isOwned tells whether a controller looks after the pod. A static pod belongs
// to its Node, which starts no other.
func isOwned(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind != "Node"
}
