// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
)

// checkRights returns an error if this process lacks SYS_ADMIN, NET_ADMIN or, unless the backend is
// nftables, NET_RAW, which the test needs. Without this check, the test would blame the kernel, because
// iptables then reports a missing table.
func checkRights(asked config.Backend) error {
	needed := []struct {
		name   string
		number uint // less than 32
	}{{"SYS_ADMIN", unix.CAP_SYS_ADMIN}, {"NET_ADMIN", unix.CAP_NET_ADMIN}, {"NET_RAW", unix.CAP_NET_RAW}}
	if asked == config.NFTables {
		needed = needed[:2]
	}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &sets[0]); err != nil {
		return fmt.Errorf("reading this process's capabilities: %w", err)
	}
	for _, capability := range needed {
		if sets[0].Effective&(1<<capability.number) == 0 {
			return fmt.Errorf("the test lacks the capability %s", capability.name)
		}
	}
	return nil
}
