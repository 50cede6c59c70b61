// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

// desired is the desired state of a pod's network namespace, from the pod's
// annotations at its creation: a later edit must not loosen the capture of a
// running pod.
type desired struct {
	known         bool   // false before the first answer
	digest        string // of the answer that all this follows from
	exemption     capture.Exemption
	mesh          config.MeshName // by whose keys the pod is captured; empty for an exempt one
	intent        packed
	stamp         string // of the rules
	changed       bool   // the annotations were edited since the pod's creation
	hasController bool
}

func newDesired(answer *lookup.Answer, exemption capture.Exemption) desired {
	return desired{known: true, digest: answer.Digest, exemption: exemption, hasController: answer.HasController}
}

// decide sets the desired state from the pod as it is now and its sandbox.
func (d *desired) decide(answer *lookup.Answer, sandbox cri.Sandbox, settings config.Settings, addresses func() ([]netip.Addr, error)) error {
	decision, err := capture.Decide(asCreated(answer, sandbox), settings)
	if err != nil {
		return err
	}
	fresh := newDesired(answer, decision.Exemption)
	if fresh.exemption.Cause == "" {
		edited, err := capture.Decide(*answer.Pod, settings)
		fresh.changed = err != nil || !reflect.DeepEqual(edited.Intent, decision.Intent)
		own, err := addresses()
		if err != nil {
			return err
		}
		if decision, err = decision.At(own); err != nil {
			return err
		}
		fresh.mesh, fresh.stamp = decision.Intent.Mesh, decision.Rules.Stamp()
		if fresh.intent, err = pack(decision.Intent); err != nil {
			return err
		}
	}
	*d = fresh
	return nil
}

func (d desired) rules() capture.Ruleset { return capture.Rules(d.intent.unpack()) }

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
