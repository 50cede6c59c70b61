// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
)

// checkRights returns which capability this process lacks for a test. Without one, iptables
// reports that the kernel lacks a table.
func checkRights(asked config.Backend) error {
	needed := map[string]uint{"SYS_ADMIN": unix.CAP_SYS_ADMIN, "NET_ADMIN": unix.CAP_NET_ADMIN}
	if asked != config.NFTables {
		needed["NET_RAW"] = unix.CAP_NET_RAW
	}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &sets[0]); err != nil {
		return fmt.Errorf("reading this process's capabilities: %w", err)
	}
	var errs []error
	for name, number := range needed { // each below 32
		if sets[0].Effective&(1<<number) == 0 {
			errs = append(errs, fmt.Errorf("the test lacks the capability %s", name))
		}
	}
	return errors.Join(errs...)
}
