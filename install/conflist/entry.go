// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/backend"
	"github.com/capture-cni/capture-cni/install/report"
)

// podAnnotations is the key with which the entry requests the pod's annotations from the runtime. With
// the annotations, the plugin needs no lookup for a pod outside the mesh.
const podAnnotations = `"capabilities":{"io.kubernetes.cri.pod-annotations":true}`

// chainExclusions is the default of excludeNamespaces in mode multus-chain. In this mode, Multus calls
// the plugin for every pod and passes no annotations, so the plugin must look up each pod. The pods
// that the cluster itself needs must not wait for lookups.
const chainExclusions = `{"excludeNamespaces":["openshift-*","kube-*"]}`

// Entry is the plugin's entry, parsed once by ParseEntry. Later, only With and the path of the
// kubeconfig change its text.
type Entry struct {
	Conf  config.NetConf  // as the plugin reads it, with a kubeconfig in the state directory
	Keys  json.RawMessage // the operator's keys, and the keys that the agent adds to them
	Mode  report.Mode
	Asked config.Backend // the operator's choice; for backend.Auto, only With sets the chosen backend in Keys and Conf
}

// ParseEntry parses the operator's keys strictly. It returns an error for an unknown key, because the
// plugin itself could only warn about the key at each ADD.
func ParseEntry(keys []byte, mode report.Mode, stateDir, runDir string) (Entry, error) {
	keys = bytes.TrimSpace(keys)
	if len(keys) == 0 {
		keys = []byte("{}")
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(keys, &given); err != nil || given == nil {
		return Entry{}, errors.Join(errors.New("reading the plugin's configuration: expected a JSON object"), err)
	}
	for _, key := range []string{"type", "kubeconfig", "capabilities", "name", "cniVersion"} {
		if _, ok := given[key]; ok {
			return Entry{}, fmt.Errorf("the plugin's configuration has the key %q, which the agent or the runtime sets", key)
		}
	}
	auto := string(given["backend"]) == fmt.Sprintf("%q", backend.Auto)
	if auto {
		delete(given, "backend")
		keys, _ = json.Marshal(given) // the values were just decoded
	}
	socket := filepath.Join(runDir, config.AgentSocketName)
	if _, ok := given["agentSocket"]; !ok && socket != config.Default().AgentSocket {
		keys = joinObjects(fmt.Appendf(nil, `{"agentSocket":%q}`, socket), keys)
	}
	if _, ok := given["excludeNamespaces"]; !ok && mode == report.MultusChain {
		keys = joinObjects([]byte(chainExclusions), keys)
	}
	e := Entry{Keys: keys, Mode: mode}
	input, err := config.Read(e.Text(filepath.Join(stateDir, config.KubeconfigName)))
	if err != nil {
		return Entry{}, err
	}
	conf, warnings, err := input.NetConf()
	if err == nil && len(warnings) > 0 {
		err = errors.New(strings.Join(warnings, "\n"))
	}
	e.Conf, e.Asked = conf, conf.Backend
	if auto {
		e.Asked = backend.Auto
	}
	return e, err
}

// With returns the entry with the backend that the agent's test chose for backend.Auto.
func (e Entry) With(chosen config.Backend) Entry {
	e.Keys, e.Conf.Backend = joinObjects(fmt.Appendf(nil, `{"backend":%q}`, chosen), e.Keys), chosen
	return e
}

// Text returns the text of the entry with the path of a kubeconfig, followed by Keys. Under Multus, it
// does not request annotations, because Multus passes none.
func (e Entry) Text(kubeconfig string) []byte {
	own := fmt.Appendf(nil, `{"type":%q,"kubeconfig":%q`, PluginType, kubeconfig)
	if !e.Mode.UnderMultus() {
		own = append(own, ","+podAnnotations...)
	}
	return joinObjects(append(own, '}'), e.Keys)
}

// joinObjects returns a JSON object with the keys of two objects, without changing their bytes. The
// first object must not be empty.
func joinObjects(first, second []byte) []byte {
	rest := bytes.TrimSpace(second[1 : len(second)-1])
	if len(rest) == 0 {
		return first
	}
	return append(append(first[:len(first)-1:len(first)-1], ','), second[1:]...)
}
