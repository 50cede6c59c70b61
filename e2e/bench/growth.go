// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// The kinds of list that are measured.
const (
	ranges = "excludeOutboundIPRanges"
	ports  = "excludeOutboundPorts"
)

// Where connections go. The last value of every list excludes the second one.
var (
	capturedServer = netip.MustParseAddrPort("198.51.100.1:80")
	excludedServer = netip.MustParseAddrPort("198.51.100.2:81")
)

// backends are compared; iptables knows no sets.
var backends = []config.Backend{config.NFTables, config.IPTablesNFT, config.IPTablesLegacy}

// list is a pod whose annotations exclude n values of a kind, with a peer.
type list struct {
	backend            config.Backend
	kind               string
	n                  int
	pod, peer          *lab.Host
	adds               samples
	captured, excluded []time.Duration // connections
}

// growth measures how calls and connections change as a pod's lists grow.
func (b *bench) growth(chosen effort) (err error) {
	var lists []*list
	defer func() {
		for _, l := range lists {
			err = errors.Join(err, l.close())
		}
	}()
	if err := b.answerPods(); err != nil {
		return err
	}
	for _, backend := range backends {
		for _, kind := range []string{ranges, ports} {
			for _, n := range []int{0, 10, 100, 1000, 10_000} {
				l := &list{backend: backend, kind: kind, n: n}
				lists = append(lists, l)
				if err := l.connectHosts(); err != nil {
					return err
				}
				b.api.Put(pod(l.name(), l.annotations()))
			}
		}
	}
	if err := sleep(b.ctx, time.Second); err != nil { // until the agent has those pods, too
		return err
	}
	for i := range chosen.adds {
		progress("lists, round %d of %d", i+1, chosen.adds)
		for _, l := range lists {
			if err := b.addList(l, i == chosen.adds-1); err != nil {
				return err
			}
		}
	}
	for i := range chosen.rounds {
		progress("connections, round %d of %d", i+1, chosen.rounds)
		for _, l := range lists {
			if err := errors.Join(b.ctx.Err(), l.connect()); err != nil {
				return err
			}
		}
	}
	return b.printGrowth(lists)
}

// connectHosts creates the namespaces; close removes them, also after an error.
func (l *list) connectHosts() (err error) {
	if l.pod, err = lab.NewHost(); err != nil {
		return err
	}
	if l.peer, err = lab.NewHost(); err != nil {
		return err
	}
	return errors.Join(
		l.pod.AddAddresses("lo"),
		l.peer.AddAddresses("lo", capturedServer.Addr().String()+"/32", excludedServer.Addr().String()+"/32"),
		lab.Link(lab.Interface{Host: l.pod, Name: "eth0", Addresses: []string{"192.0.2.2/24"}},
			lab.Interface{Host: l.peer, Name: "eth0", Addresses: []string{"192.0.2.1/24"}}),
		l.pod.AddDefaultRoute("192.0.2.1"))
}

func (l *list) close() error {
	var errs []error
	for _, host := range []*lab.Host{l.pod, l.peer} {
		if host != nil {
			errs = append(errs, host.Close())
		}
	}
	return errors.Join(errs...)
}

// addList measures an ADD and removes the rules by DEL, or keeps them for the
// connections.
func (b *bench) addList(l *list, keep bool) error {
	s, err := measure(b.call("ADD", l.name(), l.pod.Path(), by(l.backend)))
	if err != nil {
		return err
	}
	l.adds = append(l.adds, s)
	if keep {
		return nil
	}
	_, err = measure(b.call("DEL", l.name(), l.pod.Path(), by(l.backend)))
	return err
}

// name is that of the pod with the list.
func (l *list) name() string {
	return strings.ToLower(fmt.Sprintf("listed-%s-%s-%d", l.backend, l.kind, l.n))
}

func (l *list) annotations() map[string]string {
	annotations := map[string]string{"sidecar.istio.io/status": "{}"}
	if l.n > 0 {
		annotations["traffic.sidecar.istio.io/"+l.kind] = l.values()
	}
	return annotations
}

// values returns values with gaps, so that no two can be merged. Only the last
// one matches a connection.
func (l *list) values() string {
	values := make([]string, l.n)
	for i := range values {
		values[i] = fmt.Sprint(20_000 + 2*i)
		if l.kind == ranges {
			address := binary.BigEndian.AppendUint32(nil, 10<<24+uint32(i)*512)
			values[i] = netip.AddrFrom4([4]byte(address)).String() + "/24"
		}
	}
	values[l.n-1] = fmt.Sprint(excludedServer.Port())
	if l.kind == ranges {
		values[l.n-1] = excludedServer.Addr().String() + "/32"
	}
	return strings.Join(values, ",")
}

// target returns how long the list's ADD and connections should take.
func (l *list) target() string {
	if l.backend != config.NFTables || l.kind != ranges {
		return ""
	}
	return map[int]string{1000: "ADD 1.3x none, connect within 10% of 10", 10_000: "ADD 3x none"}[l.n]
}
