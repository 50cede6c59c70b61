// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"fmt"
	"os/exec"
	"syscall"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// firstID is the host's id of the user namespace's root.
const firstID = 100_000

// newUserHost makes a network namespace that belongs to a user namespace of
// its own, as of a pod with hostUsers: false. A process that waits holds it.
func newUserHost(t *testing.T) *lab.Host {
	t.Helper()
	idMap := []syscall.SysProcIDMap{{ContainerID: 0, HostID: firstID, Size: 65536}}
	holder := exec.CommandContext(t.Context(), "sleep", "600")
	holder.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: idMap, GidMappings: idMap,
	}
	lab.Check(t, holder.Start())
	t.Cleanup(func() { _ = holder.Process.Kill(); _ = holder.Wait() })
	netns, err := ns.GetNS(fmt.Sprintf("/proc/%d/ns/net", holder.Process.Pid))
	lab.Check(t, err)
	t.Cleanup(func() { _ = netns.Close() })
	return &lab.Host{NetNS: netns}
}

// TestUserNamespace captures a pod whose uids are the node's, shifted: the
// proxy's uid counts as the pod sees it.
func TestUserNamespace(t *testing.T) {
	t.Parallel()
	const backend = config.NFTables
	lab.RequireRoot(t)
	w := world{pod: newUserHost(t), peer: lab.StartHost(t)}
	lab.Check(t, lab.Link(
		lab.Interface{Host: w.peer, Name: "eth0", Addresses: []string{external[ipv4] + "/24", external[ipv6] + "/64"}},
		lab.Interface{Host: w.pod, Name: "eth0", Addresses: []string{podIP[ipv4] + "/24", podIP[ipv6] + "/64"}}))
	lab.Check(t, w.peer.WaitForIPv6())
	w.serve(t, w.pod, "tcp", 15001, outbound)
	w.serve(t, w.pod, "tcp", 15006, inbound)
	w.serve(t, w.pod, "tcp", 8080, direct)
	w.serve(t, w.peer, "tcp", 80, direct)
	netns := open(t, w.pod, backend)
	rs := decide(t, injected(nil, nil), dualStack())
	lab.Check(t, netns.Apply(rs))

	shifted := func(o lab.Owner) lab.Owner { return lab.Owner{UID: firstID + o.UID, GID: firstID + o.GID} }
	w.probeAll(t,
		out(shifted(app), external, 80, outbound), out(shifted(proxy), external, 80, direct),
		out(shifted(proxyGID), external, 80, direct), out(shifted(proxy), podIP, 8080, inbound),
		out(shifted(app), podIP, 8080, direct), in(podIP, 8080, inbound))
	netns.expectSame(rs)
}
