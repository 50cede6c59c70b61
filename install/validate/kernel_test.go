// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Rules of a pod's output: those that capture a connection, and those that refuse one that
// could not reach a second router.
const (
	redirects  = "table inet mesh { chain output { type nat hook output priority -100; tcp dport 15002 redirect to :15001; }; }\n"
	redirects4 = "table inet mesh { chain output { type nat hook output priority -100; meta nfproto ipv4 tcp dport 15002 redirect to :15001; }; }\n"
	refuses    = `table inet others { chain output { type filter hook output priority 100
		ip ttl 1 tcp dport 15002 reject with tcp reset
		ip6 hoplimit 1 tcp dport 15002 reject with tcp reset
	}; }
`
	prohibits = `table inet others { chain before { type filter hook output priority 50
		ip ttl 1 tcp dport 15002 reject with icmp type admin-prohibited
	}; }
`
)

// startPod returns a host like a pod with addresses of both families.
func startPod(t *testing.T) *lab.Host {
	t.Helper()
	pod, router := lab.StartHost(t), lab.StartHost(t)
	lab.Check(t, errors.Join(pod.AddAddresses("lo"), lab.Link(
		lab.Interface{Host: pod, Name: "eth0", Addresses: []string{"10.0.0.2/24", "fd00::2/64"}},
		lab.Interface{Host: router, Name: "pod", Addresses: []string{"10.0.0.1/24", "fd00::1/64"}},
	), pod.AddDefaultRoute("10.0.0.1"), pod.AddDefaultRoute("fd00::1"), pod.WaitForIPv6()))
	return pod
}

// eventful is where Run writes its progress; each line calls the next function.
type eventful struct {
	bytes.Buffer
	on []func()
}

func (e *eventful) Write(p []byte) (int, error) {
	if len(e.on) > 0 {
		e.on[0]()
		e.on = e.on[1:]
	}
	return e.Buffer.Write(p)
}

// TestRun proves what the rules of a namespace capture, and says what they do not.
func TestRun(t *testing.T) {
	t.Parallel()
	const captured = " captured: a connection to %s arrived at %s\n"
	out4, out6 := "192.0.2.1:15002", "[2001:db8::1]:15002"
	ok := func(direction, family, to, at string) string {
		return fmt.Sprintf("%s %s:"+captured, direction, family, to, at)
	}
	refused := func(family, network, to string) string {
		return fmt.Sprintf("outbound %s: not captured yet: dial %s %s: connect: connection refused\n", family, network, to)
	}
	ids := fmt.Sprintf("running with uid %d and gid %d", os.Getuid(), os.Getgid())
	none := fmt.Sprintf("no proof that outbound traffic is captured (waited 0s, %s): ", ids)
	for name, tt := range map[string]struct {
		prepare  string // commands
		rules    string
		s        Settings
		later    bool // another error comes with the first line of the progress, and the rules with the second
		progress string
		code     int
		err      string
	}{
		"outbound": {
			"", redirects + refuses,
			Settings{Direction: Outbound, Families: Both},
			false,
			ok("outbound", "IPv4", out4, "127.0.0.1:15001") + ok("outbound", "IPv6", out6, "[::1]:15001"), 0, "",
		},
		"outbound, one family": {
			"", redirects + refuses,
			Settings{Direction: Outbound, Families: OnlyIPv4},
			false,
			ok("outbound", "IPv4", out4, "127.0.0.1:15001"), 0, "",
		},
		"inbound": {
			"", redirects,
			Settings{Direction: Inbound, Families: Both},
			false,
			ok("inbound", "IPv4", "10.0.0.2:15002", "127.0.0.1:15001") + ok("inbound", "IPv6", "[fd00::2]:15002", "[::1]:15001"), 0, "",
		},
		"no rules": {
			"", refuses,
			Settings{Direction: Outbound, Families: Both},
			false,
			refused("IPv4", "tcp4", out4) + refused("IPv6", "tcp6", out6), CodeOutbound,
			none + "IPv4: dial tcp4 " + out4 + ": connect: connection refused; IPv6: dial tcp6 " + out6 + ": connect: connection refused",
		},
		"rules of one family": {
			"", redirects4 + refuses,
			Settings{Direction: Outbound, Families: Both},
			false,
			ok("outbound", "IPv4", out4, "127.0.0.1:15001") + refused("IPv6", "tcp6", out6), CodeOutbound,
			none + "IPv6: dial tcp6 " + out6 + ": connect: connection refused",
		},
		"rules and an address that come later": {
			"", refuses,
			Settings{Direction: Outbound, Families: Auto, Budget: time.Hour},
			true,
			refused("IPv4", "tcp4", out4) + "outbound IPv4: not captured yet: dial tcp4 " + out4 + ": connect: no route to host\n" +
				ok("outbound", "IPv4", out4, "127.0.0.1:15001") + ok("outbound", "IPv6", out6, "[::1]:15001"), 0, "",
		},
		"no route": {
			"route del default", "",
			Settings{Direction: Outbound, Families: OnlyIPv4},
			false,
			"outbound IPv4: not captured yet: dial tcp4 " + out4 + ": connect: network is unreachable\n", CodeNotTried,
			none + "IPv4: dial tcp4 " + out4 + ": connect: network is unreachable",
		},
		"no address": {
			"link del eth0", "",
			Settings{Direction: Outbound, Families: Auto},
			false, "", CodeNotTried,
			"the pod has no address besides loopback and link-local ones",
		},
		"no IPv6": {
			"address del ::1/128 dev lo", "",
			Settings{Direction: Outbound, Families: Both},
			false,
			"", CodeNotTried,
			"the pod has no IPv6: listen tcp6 [::1]:15001: bind: cannot assign requested address",
		},
		"no own IPv6": {
			"address del fd00::2/64 dev eth0", redirects,
			Settings{Direction: Inbound, Families: Both},
			false, "", CodeNotTried,
			"the pod has no IPv6 address",
		},
		"a silent host": {
			"", "table inet others { chain output { type filter hook output priority 100; tcp dport 15002 drop; }; }",
			Settings{Direction: Outbound, Families: OnlyIPv4},
			false,
			"outbound IPv4: not captured yet: dial tcp4 " + out4 + ": i/o timeout\n", CodeOutbound, none + "IPv4: dial tcp4 " + out4 + ": i/o timeout",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := startPod(t)
			pod.Load(t, tt.rules)
			if tt.prepare != "" {
				pod.Pipe(t, tt.prepare+"\n", "ip", "-batch", "-")
			}
			tt.s.Port, tt.s.Destinations = 15001, DefaultDestinations()
			progress := &eventful{}
			if tt.later {
				progress.on = []func(){func() { pod.Load(t, prohibits) }, func() {
					pod.Load(t, redirects)
					lab.Check(t, errors.Join(pod.AddAddresses("lo", capture.ProxySourceIPv6.String()), pod.WaitForIPv6()))
				}}
			}
			pod.Within(t, func() error {
				for range 2 { // the second one needs the port of the first one
					var err error
					var failure *Failure
					var isFailure bool
					lab.Eventually(t, func() error {
						err = Run(t.Context(), tt.s, progress)
						if failure, isFailure = errors.AsType[*Failure](err); isFailure && failure.Code == CodePortInUse {
							return err // which a program that another test starts has as well, until its exec
						}
						return nil
					})
					if isFailure != (tt.code != 0) || isFailure && failure.Code != tt.code || (err != nil) != (tt.err != "") || err != nil && err.Error() != tt.err {
						t.Errorf("got error %#v %v, want %d, %s", err, err, tt.code, tt.err)
					}
					if diff := cmp.Diff(tt.progress, progress.String()); diff != "" {
						t.Error(diff)
					}
					progress.Reset()
					if tt.later || name == "a silent host" { // takes a second, which only time can show
						break
					}
				}
				return nil
			})
		})
	}
}

// TestListener expects an error of what can't listen, and a secret for each run.
func TestListener(t *testing.T) {
	lab.WithoutDescriptors(t, func() {
		const want = "listening at the proxy's port: listen tcp4 127.0.0.1:0: socket: too many open files"
		if _, err := newStandIn(t.Context(), IPv4, 0); !errors.Is(err, unix.EMFILE) || err.Error() != want {
			t.Errorf("got error %v", err)
		}
	})
	s := Settings{Direction: Outbound, Families: OnlyIPv4}
	if _, err := s.newProbes(t.Context(), nil); err == nil || err.Error() != "no --destination is an IPv4 address" {
		t.Errorf("without destinations: got error %v", err)
	}
	if a, b := newProbe(t, listen(t)), newProbe(t, listen(t)); a.response(a.to) == b.response(a.to) {
		t.Error("two runs have one secret")
	}
}

// TestSilentListener waits a second for a response, which only time can show. The second
// attempt's error differs only in a port.
func TestSilentListener(t *testing.T) {
	p, progress := newProbe(t, listen(t)), bytes.Buffer{}
	open, err := os.ReadDir("/proc/self/fd")
	lab.Check(t, err)
	for range 2 {
		p.attempt(t.Context(), &progress)
	}
	const want = "outbound IPv4: not captured yet: no response of our listener: read tcp4 "
	if !errors.Is(p.err, os.ErrDeadlineExceeded) || !strings.HasPrefix(progress.String(), want) || strings.Count(progress.String(), "\n") != 1 {
		t.Errorf("got error %v, %s", p.err, &progress)
	}
	if after, err := os.ReadDir("/proc/self/fd"); err != nil || len(after) > len(open)+1 { // the poller's
		t.Errorf("%d descriptors are open, before it were %d; %v", len(after), len(open), err)
	}
}
