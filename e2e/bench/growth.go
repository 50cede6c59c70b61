// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

const (
	listRuns = 15
	connects = 200 // of each length in each of rounds
	rounds   = 15
)

// list is a pod whose annotations exclude n values of a kind.
type list struct {
	kind          string
	n             int
	pod, peer     *lab.Host
	adds          samples
	direct, taken []time.Duration // connects that pass the rules, and captured ones
}

// growth measures how calls and connections change as a pod's lists grow.
func (b *bench) growth() (err error) {
	var lists []*list
	defer func() {
		for _, l := range lists {
			err = errors.Join(err, l.pod.Close(), l.peer.Close())
		}
	}()
	for _, kind := range []string{"excludeOutboundIPRanges", "excludeOutboundPorts"} {
		for _, n := range []int{0, 10, 100, 1000, 10_000} {
			progress("%d in %s", n, kind)
			l, err := b.newList(kind, n)
			if err != nil {
				return err
			}
			lists = append(lists, l)
		}
	}
	progress("connecting")
	for range rounds {
		for _, l := range lists {
			if err := l.connect(); err != nil {
				return err
			}
		}
	}
	printGrowth(lists)
	return nil
}

func (b *bench) newList(kind string, n int) (*list, error) {
	l := &list{kind: kind, n: n}
	annotations := map[string]string{"sidecar.istio.io/status": "{}"}
	if n > 0 {
		annotations["traffic.sidecar.istio.io/"+kind] = values(kind, n)
	}
	b.api.Put(pod("listed", annotations))
	var err error
	if l.pod, err = lab.NewHost(); err != nil {
		return nil, err
	}
	if l.peer, err = lab.NewHost(); err != nil {
		return nil, err
	}
	err = errors.Join(
		l.pod.AddAddresses("lo"), l.peer.AddAddresses("lo", "198.51.100.1/32"),
		lab.Link(lab.Interface{Host: l.pod, Name: "eth0", Addresses: []string{"192.0.2.2/24"}},
			lab.Interface{Host: l.peer, Name: "eth0", Addresses: []string{"192.0.2.1/24"}}),
		l.pod.AddDefaultRoute("192.0.2.1"))
	if err != nil {
		return nil, err
	}
	for range listRuns {
		s, err := measure(b.call("ADD", "listed", l.pod.Path(), false))
		if err != nil {
			return nil, err
		}
		l.adds = append(l.adds, s)
		// The last one stays, for the connections.
		if len(l.adds) < listRuns {
			if _, err := measure(b.call("DEL", "listed", l.pod.Path(), false)); err != nil {
				return nil, err
			}
		}
	}
	for host, address := range map[*lab.Host]string{l.peer: ":80", l.pod: ":15001"} {
		if _, err := host.Serve("tcp", address, "server"); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// values are apart from each other, and none is what the connections go to.
func values(kind string, n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint(20_000 + 2*i)
		if kind == "excludeOutboundIPRanges" {
			address := binary.BigEndian.AppendUint32(nil, 10<<24+uint32(i)*512)
			list[i] = netip.AddrFrom4([4]byte(address)).String() + "/24"
		}
	}
	return strings.Join(list, ",")
}

// connect times connections of the application, which look through the whole
// list and are captured, and of the proxy, which pass.
func (l *list) connect() error {
	for owner, times := range map[lab.Owner]*[]time.Duration{
		{UID: 1000, GID: 1000}: &l.taken, {UID: 1337, GID: 1337}: &l.direct,
	} {
		took, err := l.pod.TimeConnects(owner, "198.51.100.1:80", connects)
		if err != nil {
			return err
		}
		*times = append(*times, took...)
	}
	return nil
}

func printGrowth(lists []*list) {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "LIST\tLENGTH\tADD p50 ms\tADD CPU ms\tCONNECT, CAPTURED us\tx LENGTH 10\tCONNECT OF THE PROXY us")
	var ten time.Duration
	for _, l := range lists {
		captured := percentile(l.taken, 50)
		ratio := "-"
		if l.n == 10 {
			ten = captured
		}
		if l.n >= 10 {
			ratio = fmt.Sprintf("%.2f", float64(captured)/float64(ten))
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", l.kind, l.n, ms(percentile(l.adds.walls(), 50)),
			ms(percentile(l.adds.cpus(), 50)), us(captured), ratio, us(percentile(l.direct, 50)))
	}
	_ = table.Flush() // what is behind it is stdout
	fmt.Print("to reach: a connection with 1000 ranges within 10% of one with 10\n\n")
}
