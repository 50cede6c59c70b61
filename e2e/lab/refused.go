// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/capture-cni/capture-cni/config"
)

// refusals matches the names of the chains, in any table, that refuse packets.
const refusals = "ISTIO_(?:REFUSE|FENCE|FENCE_RESET)"

var (
	savedRefusal = regexp.MustCompile(`(?m)^\[(\d+):\d+\] -A ` + refusals + ` `)
	refusal      = regexp.MustCompile(refusals + `$`)
)

// Refused returns the number of packets that the pod's rules have refused because they would have
// bypassed capture or a fence.
func (h *Host) Refused(backend config.Backend) (packets uint64, err error) {
	if backend == config.IPTablesLegacy {
		err = h.Do(func() error {
			packets, err = savedRefusals()
			return err
		})
	} else {
		packets, err = h.listedRefusals()
	}
	if err != nil {
		return 0, fmt.Errorf("reading how many packets were refused: %w", err)
	}
	return packets, nil
}

func savedRefusals() (packets uint64, err error) {
	for _, program := range []string{"iptables-legacy-save", "ip6tables-legacy-save"} {
		saved, err := exec.Command(program, "-c").Output()
		if err != nil {
			return 0, fmt.Errorf("executing %s: %w", program, err)
		}
		for _, counter := range savedRefusal.FindAllSubmatch(saved, -1) {
			n, err := strconv.ParseUint(string(counter[1]), 10, 64)
			if err != nil {
				return 0, err
			}
			packets += n
		}
	}
	return packets, nil
}

func (h *Host) listedRefusals() (packets uint64, err error) {
	conn, err := nftables.New(nftables.WithNetNSFd(int(h.NetNS.Fd())), nftables.AsLasting())
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.CloseLasting()) }()
	chains, err := conn.ListChains()
	if err != nil {
		return 0, err
	}
	for _, chain := range chains {
		if !refusal.MatchString(chain.Name) {
			continue
		}
		rules, err := conn.GetRules(chain.Table, chain)
		if err != nil {
			return 0, err
		}
		for _, rule := range rules {
			for _, e := range rule.Exprs {
				if counter, ok := e.(*expr.Counter); ok {
					packets += counter.Packets
				}
			}
		}
	}
	return packets, nil
}
