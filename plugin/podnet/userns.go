// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// refuseUserNamespace returns a Refusal for a backend of iptables and a pod with its own user
// namespace, because the kernel accepts iptables' matches of a packet's owner only from a process in
// that user namespace.
func (n *Namespace) refuseUserNamespace(asked config.Backend) error {
	if asked == config.NFTables {
		return nil
	}
	own, err := n.ownUserNamespace()
	if err != nil {
		return fmt.Errorf("finding the pod's user namespace: %w", err)
	}
	if own {
		return capture.Refusal(fmt.Sprintf(`the pod has a user namespace of its own (hostUsers: false), which backend %q does not support; `+
			`use backend %q`, asked, config.NFTables))
	}
	return nil
}

// ownUserNamespace reports whether the network namespace belongs to another user namespace than this
// process's. See ioctl_ns(2).
func (n *Namespace) ownUserNamespace() (own bool, err error) {
	fd, err := unix.IoctlRetInt(int(n.netns.Fd()), unix.NS_GET_USERNS)
	if errors.Is(err, unix.EPERM) {
		return true, nil // the owner is outside this process's user namespace
	}
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	return !sameFile(fd, "/proc/self/ns/user"), nil
}
