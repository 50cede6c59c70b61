// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/report"
)

// ciliumBackup is the suffix that Cilium appends to the names of other programs' configuration files
// while cni.exclusive is set. Cilium does not rename directories.
const ciliumBackup = ".cilium_bak"

// ciliumLegacy is the new name of an old file of Cilium's own, which Cilium renames even without
// cni.exclusive.
const ciliumLegacy = "05-cilium.conf" + ciliumBackup

func renamedByCilium(net *host.Dir) string {
	names, _ := net.Names()
	isOther := func(name string) bool { return !strings.HasSuffix(name, ciliumBackup) || name == ciliumLegacy }
	return append(slices.DeleteFunc(names, isOther), "")[0]
}

// exclusive adds a finding if Cilium has renamed another program's file, and the agent's mode does not
// protect the entry from Cilium.
func (p *preflight) exclusive(net *host.Dir) {
	renamed := renamedByCilium(net)
	if renamed == "" {
		return
	}
	// It is uncertain whether the runtime loads drop-ins, because its list can forbid them.
	p.found = append(p.found, report.CheckExclusive(p.settings.Mode, "Cilium renamed "+renamed, false, p.runtime.HidesDropIns())...)
}

// modes adds a note about network configurations with more permissions than the CIS Kubernetes
// Benchmark (1.1.9) allows. A user who can write such a file chooses the programs that the runtime
// executes.
func (p *preflight) modes() {
	var open []string
	entries, _ := os.ReadDir(p.settings.At(p.settings.NetDir)) // if this fails, the method writable has reported the directory
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&^0o600 != 0 {
			open = append(open, fmt.Sprintf("%s (%04o)", entry.Name(), info.Mode().Perm()))
		}
	}
	if len(open) > 0 {
		p.note(report.FileModes, "set the mode 0600, or ask the owner to",
			"the CIS Kubernetes Benchmark (1.1.9) expects the mode 0600 of files in %s: %s", p.settings.NetDir, strings.Join(open, ", "))
	}
}

// ciliumNodeConfig is the file in which Cilium records how it compiled its programs.
const ciliumNodeConfig = "/run/cilium/state/globals/node_config.h"

// socketBalancing adds findings about data planes that choose a Service's backend when a process
// connects. An agent in a pod sees only the data planes' network interfaces, because it does not mount
// the node's /run or bpffs.
func (p *preflight) socketBalancing() {
	compiled, _ := host.ReadFile(p.settings.At(ciliumNodeConfig))
	switch {
	case bytes.Contains(compiled, []byte("ENABLE_SOCKET_LB_FULL")):
		p.found = append(p.found, report.CheckSockets(report.Cilium, ciliumNodeConfig, true))
	case len(compiled) == 0 && slices.Contains(p.links, "cilium_host"):
		p.found = append(p.found, report.CheckSockets(report.Cilium, "interface cilium_host", false))
	}
	if slices.Contains(p.links, "bpfin.cali") {
		p.found = append(p.found, report.CheckSockets(report.Calico, "interface bpfin.cali", false))
	}
}
