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

// desired is the desired state of a pod's network namespace. It results from the pod's annotations at
// its creation, so that a later edit can't loosen the capture of a running pod, except with
// UpdateAnnotations.
type desired struct {
	known         bool   // false until an answer of the agent was evaluated without an error
	digest        string // digest of the agent's answer from which the other fields follow
	exemption     capture.Exemption
	mesh          config.MeshName // the mesh whose annotations decide about the rules; empty if there is no intent
	intent        packed
	stamp         string // stamp of the rules
	reference     string // digest of a namespace with exactly these rules; empty until the guard needs it
	changed       bool   // the current annotations do not ask for these rules
	followed      bool   // the desired state follows edits of the annotations after the pod's creation
	followable    bool   // guard.update=annotations would follow the edits
	faulty        bool   // the edits that guard.update=annotations would follow are invalid
	held          bool   // faulty, and guard.update=annotations is set, so the pod keeps its rules
	transparent   bool   // inbound connections are captured by TPROXY
	hasController bool
}

func newDesired(answer *lookup.Answer, exemption capture.Exemption) desired {
	return desired{known: true, digest: answer.Digest, exemption: exemption, hasController: answer.HasController}
}

// asked is the decision about a pod before its addresses are known.
type asked struct {
	capture.Decision // by the annotations at the pod's creation
	answer           *lookup.Answer
	edited           capture.Intent    // by the current annotations; zero for a fault or an exemption
	followed         *capture.Decision // with the edits that a running pod can follow; nil for none, or for a fault
	fault            error             // why the edits that a running pod could follow are invalid
	refusal          error             // why the plugin refuses the pod; the other fields are then zero
}

// newAsked decides by the annotations at the pod's creation, and determines whether later edits ask for
// other rules, and whether a running pod can follow the edits.
func newAsked(answer *lookup.Answer, sandbox cri.Sandbox, settings config.Settings) (*asked, error) {
	created := asCreated(answer, sandbox)
	decision, err := capture.Decide(created, settings)
	if err != nil {
		return nil, err
	}
	edited, err := capture.Decide(*answer.Pod, settings)
	a := &asked{Decision: decision, answer: answer, edited: edited.Intent}
	if decision.Exemption.Cause == "" && (err != nil || a.isEdited(decision)) {
		var followed capture.Decision
		followed, a.fault = capture.Decide(created.Following(*answer.Pod, settings.Meshes), settings)
		if a.fault == nil && !reflect.DeepEqual(followed.Intent, decision.Intent) {
			a.followed = &followed
		}
	}
	return a, nil
}

// isEdited reports whether the current annotations ask for other rules than a decision.
func (a asked) isEdited(d capture.Decision) bool { return !reflect.DeepEqual(a.edited, d.Intent) }

// at returns the desired state of a pod with these addresses. With UpdateAnnotations, it follows the
// edits that a running pod can follow, unless they are invalid.
func (a asked) at(addresses []netip.Addr, update Update) (d desired, err error) {
	decision, faulty, follows := a.Decision, a.fault != nil, update == UpdateAnnotations
	if a.followed != nil {
		_, err := podnet.Complete(*a.followed, addresses)
		faulty = err != nil
	}
	followable := a.followed != nil && !faulty
	if followable && follows {
		decision = *a.followed
	}
	changed := a.isEdited(decision)
	if decision, err = podnet.Complete(decision, addresses); err != nil {
		return desired{}, err
	}
	d = newDesired(a.answer, decision.Exemption)
	d.mesh, d.stamp, d.changed, d.transparent = decision.Intent.Mesh, decision.Rules.Stamp(), changed, decision.Intent.Transparent
	d.followed, d.followable, d.faulty, d.held = followable && follows, followable, faulty, faulty && follows
	d.intent, err = pack(decision.Intent)
	return d, err
}

// isOther reports whether a stamp is that of other rules than the desired ones, for example of another
// version or configuration of the plugin or, with UpdateAnnotations, of earlier annotations.
func (d desired) isOther(stamp string) bool { return capture.IsStamp(stamp) && stamp != d.stamp }

func (d desired) rules() capture.Ruleset { return capture.Rules(d.intent.unpack()) }

// packed is a compressed Intent. The guard compresses Intents, because the pods of a node can list a
// million ranges of 32 bytes each.
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

// unpack returns the Intent. It panics for data that pack did not return.
func (p packed) unpack() (intent capture.Intent) {
	if err := json.NewDecoder(flate.NewReader(bytes.NewReader(p))).Decode(&intent); err != nil {
		panic("guard: " + err.Error())
	}
	return intent
}
