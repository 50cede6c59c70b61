// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/entry"
	"github.com/capture-cni/capture-cni/install/host"
)

// chain checks what mode multus-chain needs.
func (p *preflight) chain() {
	if p.settings.TmpfilesDir == "" {
		p.note("set --tmpfiles-dir /etc/tmpfiles.d if that directory is emptied at boot", "nothing recreates the entry in %s at boot: pods that start before the agent run uncaptured", p.settings.NetDir)
	}
	if p.settings.Entry.Conf.Status == config.StatusStrict {
		p.note("remove it from --netconf", `Multus passes neither STATUS nor CHECK on to its chain: {"status": "strict"} has no effect`)
	}
	net, err := host.OpenDir(p.settings.At(p.settings.NetDir))
	if err != nil {
		return // writable has reported it
	}
	defer net.Close()
	if err := entry.ChainFault(net); err != nil {
		p.serious("ask the owner of the file", "%v", err)
	}
}
