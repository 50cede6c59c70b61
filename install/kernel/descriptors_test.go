// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/lab/sample"
	"github.com/capture-cni/capture-cni/install/trace"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
	"github.com/capture-cni/capture-cni/plugin/nftables"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// TestNoDescriptorStays examines, repairs and explains a pod many times, as a guard does for
// months: each closes what it opened, also where it fails.
func TestNoDescriptorStays(t *testing.T) {
	lab.RequireRoot(t)
	host := lab.StartHost(t)
	rules := sample.Rules().WithStamp()
	host.Load(t, "table inet other {\n chain first {\n type filter hook prerouting priority -400\n tcp dport 1 drop\n }\n}")
	host.Within(t, func() error { return nftables.Backend{}.Apply(t.Context(), rules) })
	ended, end := context.WithCancel(t.Context())
	end()
	n, err := podnet.Open(ended, host.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	from, to := netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("192.0.2.2:2")
	connection := Connection{Client: from, Server: to, Stage: Open}
	inside := func(f func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error { return n.Do(func() error { return f(ctx) }) }
	}
	packet := trace.Packet{Protocol: "tcp", To: to, Interface: "lo"}
	for name, work := range map[string]func(context.Context) error{
		"Generation":   inside(func(ctx context.Context) error { _, err := generation(ctx); return err }),
		"Counters":     inside(func(ctx context.Context) error { _, err := counters(ctx); return err }),
		"Obstruction":  inside(func(ctx context.Context) error { _, err := obstruction(ctx); return err }),
		"HooksInFront": inside(func(ctx context.Context) error { _, err := hooksInFront(ctx, packet); return err }),
		"Inspect":      inside(func(ctx context.Context) error { _, err := netfilter.Inspect(ctx); return err }),
		"Observe": func(ctx context.Context) error {
			o, err := Observe(ctx, n, Question{Routes: true, Packet: &packet})
			if err == nil {
				_, err = (&References{}).Digest(ctx, rules)
			}
			return errors.Join(err, o.RulesFault, o.CountersFault, o.ObstructionFault, o.Traced.Fault)
		},
		"Replace":     func(ctx context.Context) error { lost, err := Replace(ctx, n, rules); return errors.Join(lost, err) },
		"DeleteStale": func(ctx context.Context) error { return DeleteStale(ctx, n) },
		"Sockets":     inside(func(ctx context.Context) error { _, _, err := Sockets(ctx, 10); return err }),
		"Entries": inside(func(ctx context.Context) error {
			_, _, err := Entries(ctx, 10, func(Entry) bool { return true })
			return err
		}),
		"Create":       inside(func(ctx context.Context) error { return CreateEntries(ctx, []Connection{connection}) }),
		"FlushEntries": inside(FlushEntries),
	} {
		if err := work(t.Context()); err != nil { // what is opened once, and kept
			t.Errorf("%s: %v", name, err)
		}
		const times = 20
		before := descriptors(t)
		for range times {
			if err := work(t.Context()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			_ = work(ended) // may fail, and may have done its work by then
		}
		if more := descriptors(t) - before; more > times/5 {
			t.Errorf("%s: %d descriptors more after %d times", name, more, times)
		}
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}
