// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/binary"
	"errors"
	"net"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestInvalidDrop sends a packet that belongs to no connection: an
// acknowledgement of a SYN that was never sent. It is answered with a reset,
// unless INVALID_DROP is set.
func TestInvalidDrop(t *testing.T) {
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		for _, drop := range []bool{false, true} {
			t.Run("INVALID_DROP="+strconv.FormatBool(drop), func(t *testing.T) {
				w := newWorld(t, []int{80, 8080}, istioMesh)
				env := map[string]string{"INVALID_DROP": strconv.FormatBool(drop)}
				lab.Check(t, open(t, w.pod, backend).Apply(decide(t, injected(nil, env), config.DefaultSettings())))
				if answered := sendStraySYNACK(t, w.peer, external, podIP); answered == drop {
					t.Errorf("the stray packet was answered with a reset: %v", answered)
				}
				w.probe(t, in(podIP, 8080, inbound), ipv4)
			})
		}
	})
}

// TestInvalidDropOnExcludedInterface sends the same packet over an interface that
// is excluded, and so left alone in this, too.
func TestInvalidDropOnExcludedInterface(t *testing.T) {
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		for _, mode := range []string{"REDIRECT", "TPROXY"} {
			t.Run(mode, func(t *testing.T) {
				w := newWorld(t, []int{80, 8080}, istioMesh)
				pod := injected(map[string]string{
					"sidecar.istio.io/interceptionMode": mode, "traffic.sidecar.istio.io/excludeInterfaces": "net1",
				}, map[string]string{"INVALID_DROP": "true"})
				lab.Check(t, open(t, w.pod, backend).Apply(decide(t, pod, config.DefaultSettings())))
				if !sendStraySYNACK(t, w.peer, secondPeer, secondIP) {
					t.Error("the stray packet is dropped on the excluded interface")
				}
				if sendStraySYNACK(t, w.peer, external, podIP) {
					t.Error("the stray packet is answered with a reset on another interface")
				}
				w.probe(t, in(secondIP, 8080, direct), ipv4)
				w.probe(t, in(podIP, 8080, inbound), ipv4)
			})
		}
	})
}

// TestEcho makes sure that ICMP passes: rules are for TCP.
func TestEcho(t *testing.T) {
	forEachBackend(t, func(t *testing.T, backend config.Backend) {
		w := newWorld(t, []int{80}, istioMesh)
		lab.Check(t, open(t, w.pod, backend).Apply(decide(t, injected(nil, nil), dualStack())))
		for _, direction := range []struct {
			from *lab.Host
			to   string
		}{{w.pod, external[ipv4]}, {w.peer, podIP[ipv4]}} {
			lab.Check(t, direction.from.Do(func() error { return echo(direction.to) }))
		}
	})
}

func echo(to string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	request := []byte{8, 0, 0, 0, 0, 1, 0, 1} // echo request, id 1, sequence 1
	binary.BigEndian.PutUint16(request[2:], checksum(request))
	for range 5 { // like ping, more than once: nothing promises that a packet arrives
		if err := unix.Sendto(fd, request, 0, sockaddr(to)); err != nil {
			return err
		}
		err = receive(fd, func(packet []byte) bool { return packet[20] == 0 }) // echo reply
		if !errors.Is(err, syscall.EAGAIN) {
			return err
		}
	}
	return err
}

// sendStraySYNACK reports whether the pod answers with a reset.
func sendStraySYNACK(t *testing.T, peer *lab.Host, from, to dst) (answered bool) {
	t.Helper()
	err := peer.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_TCP)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Sendto(fd, straySYNACK(from, to), 0, sockaddr(to[ipv4])); err != nil {
			return err
		}
		const reset = 0x04
		err = receive(fd, func(packet []byte) bool {
			return binary.BigEndian.Uint16(packet[20:]) == 8080 && packet[20+13]&reset != 0
		})
		if errors.Is(err, syscall.EAGAIN) {
			return nil
		}
		answered = err == nil
		return err
	})
	lab.Check(t, err)
	return answered
}

func straySYNACK(from, to dst) []byte {
	segment := make([]byte, 20)
	binary.BigEndian.PutUint16(segment[0:], 40000)
	binary.BigEndian.PutUint16(segment[2:], 8080)
	binary.BigEndian.PutUint32(segment[8:], 12345) // acknowledges nothing that was sent
	segment[12], segment[13] = 5<<4, 0x12          // header length, SYN and ACK
	binary.BigEndian.PutUint16(segment[14:], 1024)
	pseudo := append(net.ParseIP(from[ipv4]).To4(), net.ParseIP(to[ipv4]).To4()...)
	pseudo = append(pseudo, 0, unix.IPPROTO_TCP, 0, byte(len(segment)))
	binary.BigEndian.PutUint16(segment[16:], checksum(append(pseudo, segment...)))
	return segment
}

// receive reads packets with their IPv4 header until one is wanted. EAGAIN: none came.
func receive(fd int, wanted func(packet []byte) bool) error {
	timeout := unix.NsecToTimeval(int64(500 * time.Millisecond))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return err
	}
	buffer := make([]byte, 1500)
	for range 20 {
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		if err != nil {
			return err
		}
		if n >= 28 && wanted(buffer[:n]) {
			return nil
		}
	}
	return errors.New("only other packets came")
}

func sockaddr(address string) unix.Sockaddr {
	return &unix.SockaddrInet4{Addr: [4]byte(net.ParseIP(address).To4())}
}

// checksum is the Internet's (RFC 1071).
func checksum(data []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(data); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(data[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
