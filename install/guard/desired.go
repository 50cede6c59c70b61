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
	"github.com/capture-cni/capture-cni/plugin/podnet"
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
	reference     string // digest of a namespace that holds the rules; empty until it is needed
	changed       bool   // the annotations were edited since the pod's creation
	transparent   bool   // by TPROXY
	hasController bool
}

func newDesired(answer *lookup.Answer, exemption capture.Exemption) desired {
	return desired{known: true, digest: answer.Digest, exemption: exemption, hasController: answer.HasController}
}

// asked is the decision about a pod, before its addresses are known.
type asked struct {
	capture.Decision
	answer  *lookup.Answer
	changed bool
}

// newAsked decides by the annotations at the pod's creation, and finds out whether they were
// edited since.
func newAsked(answer *lookup.Answer, sandbox cri.Sandbox, settings config.Settings) (*asked, error) {
	decision, err := capture.Decide(asCreated(answer, sandbox), settings)
	if err != nil {
		return nil, err
	}
	edited, err := capture.Decide(*answer.Pod, settings)
	return &asked{decision, answer, err != nil || !reflect.DeepEqual(edited.Intent, decision.Intent)}, nil
}

// at returns the desired state of a pod with these addresses.
func (a asked) at(addresses []netip.Addr) (desired, error) {
	decision, err := podnet.Complete(a.Decision, addresses)
	if err != nil {
		return desired{}, err
	}
	d := newDesired(a.answer, decision.Exemption)
	d.mesh, d.stamp, d.changed, d.transparent = decision.Intent.Mesh, decision.Rules.Stamp(), a.changed, decision.Intent.Transparent
	d.intent, err = pack(decision.Intent)
	return d, err
}

// isOther reports whether a stamp is that of rules of another version or configuration.
func (d desired) isOther(stamp string) bool { return capture.IsStamp(stamp) && stamp != d.stamp }

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
