// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"golang.org/x/sys/unix"
)

// routedAround describes the first policy rule for another table that precedes the rule by which all
// packets use the table local, or returns "". Such a rule can route a redirected packet, whose
// destination is an address of the pod such as 127.0.0.1, to another place than the pod.
func routedAround() (string, error) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		rules, err := netlinksafe.RuleList(family)
		if err != nil {
			return "", fmt.Errorf("listing the policy rules: %w", err)
		}
		for _, rule := range rules {
			if rule.Table != unix.RT_TABLE_LOCAL {
				return fmt.Sprintf("policy rule %q in front of table local: it can route redirected packets elsewhere", rule), nil
			}
			if rule.Src == nil && rule.Dst == nil && rule.IifName == "" && rule.OifName == "" && rule.Mark == 0 && rule.Tos == 0 &&
				!rule.Invert && rule.IPProto == 0 && rule.Sport == nil && rule.Dport == nil && rule.UIDRange == nil {
				break // the rule that applies to all packets
			}
		}
	}
	return "", nil
}
