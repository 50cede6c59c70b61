// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"bytes"
	"compress/flate"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// desired is the desired state of a pod's network namespace, from the pod's
// annotations at its creation: a later edit must not loosen the capture of a
// running pod.
type desired struct {
	readAt        time.Time // zero before the pod was read
	exemption     capture.Exemption
	intent        packed
	stamp         string // of the rules
	changed       bool   // the annotations were edited since the pod's creation
	hasController bool
}

// refresh reads the pod if a read is due, or returns nil. Where a read fails and
// the desired state is known, that stays as it is.
func (d *desired) refresh(ctx context.Context, pods Pods, sandbox cri.Sandbox, every time.Duration) (*corev1.Pod, error) {
	known := !d.readAt.IsZero()
	if known && time.Since(d.readAt) < every {
		return nil, nil
	}
	pod, err := pods.Pod(ctx, refOf(sandbox))
	if err != nil && known && !podlookup.IsGone(err) {
		return nil, nil
	}
	return pod, err
}

// decide sets the desired state from the pod as it is now and its sandbox.
func (d *desired) decide(now *corev1.Pod, sandbox cri.Sandbox, settings config.Settings, addresses func() ([]netip.Addr, error)) error {
	addresses = sync.OnceValues(addresses) // the same for both decisions
	decision, err := capture.Decide(asCreated(now, sandbox), settings, addresses)
	if err != nil {
		return err
	}
	fresh := desired{readAt: time.Now(), exemption: decision.Exemption, hasController: hasController(now)}
	if fresh.exemption.Cause == "" {
		fresh.stamp = capture.Rules(decision.Intent).Stamp()
		edited, err := capture.Decide(capture.PodOf(now), settings, addresses)
		fresh.changed = err != nil || !reflect.DeepEqual(edited.Intent, decision.Intent)
		if fresh.intent, err = pack(decision.Intent); err != nil {
			return err
		}
	}
	*d = fresh
	return nil
}

func (d desired) rules() capture.Ruleset { return capture.Rules(d.intent.unpack()) }

// hasController reports whether a controller would replace the pod. A static pod
// is controlled by its Node, which replaces none.
func hasController(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind != "Node"
}

// packed is a compressed Intent: the pods of a node can list a million ranges, of
// 32 bytes each. It is unpacked only to compare or to write rules.
type packed []byte

func pack(intent capture.Intent) (packed, error) {
	var buffer bytes.Buffer
	writer, err := flate.NewWriter(&buffer, flate.BestSpeed)
	if err == nil {
		err = errors.Join(json.NewEncoder(writer).Encode(intent), writer.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("packing an intent: %w", err)
	}
	return bytes.Clone(buffer.Bytes()), nil
}

// unpack panics for anything that pack did not return.
func (p packed) unpack() (intent capture.Intent) {
	if err := json.NewDecoder(flate.NewReader(bytes.NewReader(p))).Decode(&intent); err != nil {
		panic("guard: " + err.Error())
	}
	return intent
}
