// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// refusing is a kernel that refuses the first message that matches.
type refusing struct {
	matches func(m syscall.NetlinkMessage) bool
	fault   unix.Errno
	seq     uint32
}

func (r *refusing) Close() {}

func (r *refusing) Send(content []byte) error {
	messages, err := syscall.ParseNetlinkMessage(content)
	for _, m := range messages {
		if r.seq == 0 && r.matches(m) {
			r.seq = m.Header.Seq
		}
	}
	return err
}

func (r *refusing) Receive(_ context.Context, each func(syscall.NetlinkMessage) (bool, error)) error {
	body := binary.NativeEndian.AppendUint32(nil, uint32(-int32(r.fault)))
	_, err := each(syscall.NetlinkMessage{Header: syscall.NlMsghdr{Type: unix.NLMSG_ERROR, Seq: r.seq}, Data: body})
	return err
}

func isMessage(kind uint16, contains string) func(syscall.NetlinkMessage) bool {
	return func(m syscall.NetlinkMessage) bool {
		return m.Header.Type == unix.NFNL_SUBSYS_NFTABLES<<8|kind && strings.Contains(string(m.Data), contains)
	}
}

// TestMissingModules has kernels that lack parts of nf_tables: the error names the part,
// and the chain and rule that need it.
func TestMissingModules(t *testing.T) {
	t.Parallel()
	begin := func(m syscall.NetlinkMessage) bool { return m.Header.Type == unix.NFNL_MSG_BATCH_BEGIN }
	for name, tt := range map[string]struct {
		kernel refusing
		want   []string
	}{
		"no nf_tables":    {refusing{begin, unix.EOPNOTSUPP, 0}, []string{"lacks nf_tables", "modprobe nf_tables"}},
		"no permission":   {refusing{begin, unix.EPERM, 0}, []string{"operation not permitted"}},
		"no nat":          {refusing{isMessage(unix.NFT_MSG_NEWCHAIN, "nat\x00"), unix.ENOENT, 0}, []string{"chain nat_", "lacks nft_chain_nat"}},
		"no redirect":     {refusing{isMessage(unix.NFT_MSG_NEWRULE, "redir\x00"), unix.ENOENT, 0}, []string{"chain nat_ISTIO_", "rule \"", "lacks nft_redir"}},
		"no tproxy":       {refusing{isMessage(unix.NFT_MSG_NEWRULE, "tproxy\x00"), unix.ENOENT, 0}, []string{"chain mangle_ISTIO_", "lacks nft_tproxy"}},
		"no ct":           {refusing{isMessage(unix.NFT_MSG_NEWRULE, "ct\x00"), unix.EOPNOTSUPP, 0}, []string{"lacks nft_ct"}},
		"no memory":       {refusing{isMessage(unix.NFT_MSG_NEWRULE, "redir\x00"), unix.ENOMEM, 0}, []string{"chain nat_ISTIO_", "cannot allocate memory"}},
		"an invalid rule": {refusing{isMessage(unix.NFT_MSG_NEWRULE, "meta\x00"), unix.EINVAL, 0}, []string{"chain ", "invalid argument"}},
	} {
		b := nfnetlink.NewBatch()
		intent := capture.Intent{
			Mesh:         config.Istio,
			OutboundPort: 15001, InboundPort: 15006, DNSPort: 15053, ProxyUID: 1337, ProxyGID: 1337,
			LoopbackCIDR: netip.MustParsePrefix("127.0.0.1/32"),
			InboundPorts: capture.Everything[uint16](), OutboundRanges: capture.Everything[netip.Prefix](),
			Transparent: strings.Contains(name, "tproxy"), CaptureDNS: true,
		}
		Queue(b, capture.Rules(intent))
		err := b.Exchange(t.Context(), &tt.kernel)
		if !errors.Is(err, tt.kernel.fault) {
			t.Errorf("%s: got %v", name, err)
			continue
		}
		for _, part := range tt.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v: does not say %s", name, err, part)
			}
		}
		if strings.Contains(err.Error(), "lacks") != strings.Contains(strings.Join(tt.want, ""), "lacks") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestKernelWithoutExpression asks this kernel for an expression and for a type of chain
// that no kernel has.
func TestKernelWithoutExpression(t *testing.T) {
	lab.RequireRoot(t)
	t.Parallel()
	scratch, err := ns.TempNetNS()
	if err != nil {
		t.Fatal(err)
	}
	defer scratch.Close()
	table := nfnetlink.InetTable("t")
	for want, fill := range map[string]func(b *nfnetlink.Batch){
		`chain c, rule "why": the kernel lacks nft_absent:`: func(b *nfnetlink.Batch) {
			b.AddChain(table, "c", nil)
			b.AddRule(table, "c", "why", func() { b.Expression("absent", func() {}) })
		},
		"chain c: the kernel lacks nft_chain_absent:": func(b *nfnetlink.Batch) {
			b.AddChain(table, "c", &nfnetlink.Hook{Number: unix.NF_INET_LOCAL_OUT, Type: "absent"})
			b.DeleteRules(table, "c")
		},
	} {
		b := nfnetlink.NewBatch()
		b.CreateTable(table, 0)
		fill(b)
		err := scratch.Do(func(ns.NetNS) error { return b.Commit(t.Context()) })
		if err == nil || !errors.Is(err, unix.ENOENT) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
