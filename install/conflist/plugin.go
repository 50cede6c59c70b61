// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/containernetworking/cni/libcni"
)

// checkPlugin returns nil if libcni can load the text as the configuration of a single plugin, and
// otherwise the reason, which quotes nothing of the text.
func checkPlugin(text []byte) error {
	_, err := libcni.NetworkPluginConfFromBytes(text)
	if err == nil {
		return nil
	}
	if errors.Unwrap(err) == nil {
		return errors.New("expected a type")
	}
	return withoutContent(err)
}

// auxiliary contains the keys of a Multus configuration that concern its auxiliary chain.
type auxiliary struct {
	Type  string `json:"type"`
	Chain string `json:"auxiliaryCNIChainName"`
}

// CheckAuxiliaryChain returns nil if pods of a network go through the auxiliary chain of Multus with
// this name, and otherwise the reason. The text is a list or a plain configuration.
func CheckAuxiliaryChain(text []byte, name string) error {
	var network struct {
		auxiliary
		Plugins []auxiliary `json:"plugins"`
	}
	if err := json.Unmarshal(text, &network); err != nil {
		return withoutContent(err)
	}
	for _, plugin := range append(network.Plugins, network.auxiliary) {
		switch {
		case !strings.HasPrefix(plugin.Type, "multus"):
		case plugin.Chain == "":
			return fmt.Errorf("the configuration of Multus has no auxiliaryCNIChainName: "+
				"expected %q, which needs Multus 4.2.1 or newer (OpenShift 4.19)", name)
		case plugin.Chain != name:
			return fmt.Errorf("the auxiliaryCNIChainName of Multus is %q: expected %q, the last part of --net-dir", Shown(plugin.Chain), name)
		default:
			return nil
		}
	}
	return errors.New("the runtime does not call Multus")
}
