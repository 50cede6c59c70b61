// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/conflist"
)

// annotationsCapability has the runtime hand over a pod's annotations, by which
// a pod outside the mesh costs no API call.
const annotationsCapability = `{"io.kubernetes.cri.pod-annotations":true}`

// Entry spells our entry: ours first, then the operator's keys in their order.
// Multus hands no annotations over, so that it is not asked to. Faults and
// unknown keys are errors here: nobody looks at a log before pods start.
func Entry(kubeconfig string, netConf json.RawMessage, mode Mode) ([]byte, error) {
	var out bytes.Buffer
	fmt.Fprintf(&out, `{"type":%q,"kubeconfig":%q`, conflist.PluginType, kubeconfig)
	if mode != Multus {
		fmt.Fprintf(&out, `,"capabilities":%s`, annotationsCapability)
	}
	extra := bytes.TrimSpace(netConf)
	if len(extra) > 0 {
		var keys map[string]json.RawMessage
		if err := json.Unmarshal(extra, &keys); err != nil || keys == nil {
			return nil, errors.Join(errors.New("reading the plugin's configuration: expected a JSON object"), err)
		}
		for _, key := range []string{"type", "kubeconfig", "capabilities", "name", "cniVersion"} {
			if _, ok := keys[key]; ok {
				return nil, fmt.Errorf("the plugin's configuration has the key %q, which the agent writes itself", key)
			}
		}
		if len(keys) > 0 {
			out.WriteByte(',')
			out.Write(extra[1 : len(extra)-1])
		}
	}
	out.WriteByte('}')
	entry := out.Bytes()
	_, err := ReadEntry(entry)
	return entry, err
}

// ReadEntry reads an entry as the plugin will, and strictly.
func ReadEntry(entry []byte) (config.NetConf, error) {
	input, err := config.Read(entry)
	if err != nil {
		return config.NetConf{}, err
	}
	conf, warnings, err := input.NetConf()
	if err == nil && len(warnings) > 0 {
		err = errors.New(strings.Join(warnings, "\n"))
	}
	return conf, err
}
