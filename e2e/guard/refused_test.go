// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/report"
)

const refusedEnv = "CAPTURE_CNI_TEST_REFUSED"

// TestRepairWithoutSockets repairs a pod where the kernel refuses to list its
// sockets: capture comes first, and the Event says what that costs.
func TestRepairWithoutSockets(t *testing.T) {
	t.Parallel()
	lab.RequireRoot(t)
	if os.Getenv(refusedEnv) == "" { // a filter of system calls is for the life of a process
		command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		command.Env = append(os.Environ(), refusedEnv+"=yes")
		if out, err := command.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	refuseSockDiag(t)
	n := newNode()
	events := n.listen(t)
	p := n.run(t, "web")
	p.serveAll(t)
	echo(t, p.host, echoPort, nil)
	began := dial(t, p.peer, fmt.Sprintf("%s:%d", podAddress, echoPort))
	lab.Check(t, works(began))
	g := n.newGuard(t, options{})
	g.finds(t, report.Captured)
	if err := works(began); err == nil {
		t.Error("the connection of before goes on, past the proxy")
	}
	answer, err := p.peer.Ask(lab.Owner{}, "tcp", "", appAddress)
	if err != nil || answer.Server != inboundProxy {
		t.Errorf("a new connection reaches %q, %v", answer.Server, err)
	}
	p.holdsWhatADDInstalls(t, n)
	records := receive(t, events)["web"]
	if len(records) != 1 {
		t.Fatalf("%d Events", len(records))
	}
	for _, want := range []string{"not all connections that began before the repair survive", "listing the namespace's TCP sockets", "operation not permitted"} {
		if !strings.Contains(records[0].Message, want) {
			t.Errorf("the Event does not say %q: %s", want, records[0].Message)
		}
	}
}

// refuseSockDiag has the kernel refuse this process' netlink sockets for
// sock_diag(7), as a seccomp profile may.
func refuseSockDiag(t *testing.T) {
	t.Helper()
	const number, domain, protocol = 0, 16, 32 // offsets in struct seccomp_data, of little-endian arguments' lower halves
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	unlessEqual := func(value uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: skip}
	}
	verdict := func(value uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: value}
	}
	filter := []unix.SockFilter{
		load(number), unlessEqual(unix.SYS_SOCKET, 5),
		load(domain), unlessEqual(unix.AF_NETLINK, 3),
		load(protocol), unlessEqual(unix.NETLINK_SOCK_DIAG, 1),
		verdict(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)),
		verdict(unix.SECCOMP_RET_ALLOW),
	}
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Fatal("the filter is for little-endian machines")
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		t.Fatalf("filtering system calls: %v", errno)
	}
}
