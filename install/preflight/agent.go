// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/settings"
)

// InAgent is Check in the agent itself. It tests the kernel only where this
// process may: the agent's pod has neither the capabilities nor iptables.
func InAgent(ctx context.Context, settings settings.Node, runtime *cri.Client) Problems {
	p := newPreflight(settings)
	p.files(ctx, runtime)
	if settings.Entry.Conf.Backend == config.NFTables && hasCapabilities(unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN) {
		p.kernel(ctx)
	}
	return p.found
}

// hasCapabilities reports whether this process has the capabilities, each below 32.
func hasCapabilities(wanted ...int) bool {
	var sets [2]unix.CapUserData
	if unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &sets[0]) != nil {
		return false
	}
	for _, capability := range wanted {
		if sets[0].Effective&(1<<capability) == 0 {
			return false
		}
	}
	return true
}
