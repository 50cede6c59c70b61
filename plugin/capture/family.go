// SPDX-License-Identifier: Apache-2.0

package capture

import "slices"

// For returns the part of the Ruleset that packets of a family can reach. If no rule applies to the
// family, the part has no chains.
func (rs Ruleset) For(family Family) Ruleset {
	rules := map[string][]Rule{} // rules of the chains that such packets can enter
	var enter func(Chain)
	enter = func(chain Chain) {
		if _, entered := rules[chain.NFTName()]; entered {
			return
		}
		met := chain.metBy(family)
		rules[chain.NFTName()] = met
		for _, rule := range met {
			if target := rule.Do.Chain; target != "" {
				enter(rs.Chain(chain.Table, target))
			}
		}
	}
	for _, chain := range rs.Chains {
		if chain.Hook != "" {
			enter(chain)
		}
	}
	part := rs
	part.Chains = nil
	for _, chain := range rs.Chains {
		if chain.Rules = rules[chain.NFTName()]; len(chain.Rules) > 0 {
			part.Chains = append(part.Chains, chain)
		}
	}
	return part
}

// metBy returns the rules of the chain that packets of a family can reach. It omits rules that match
// only the other family, and ends before the first rule that returns all of the family's packets, or
// after the first rule from which all of them go to another chain.
func (c Chain) metBy(family Family) (met []Rule) {
	met = make([]Rule, 0, len(c.Rules))
	for _, rule := range c.Rules {
		if of := rule.Match.OnlyFamily(); of != "" && of != family {
			continue
		}
		all := rule.Match.Protocol == "" && rule.Match.empty()
		if all && rule.Do.Verdict == Return && rule.Match.Family == family {
			break
		}
		if met = append(met, rule); all && rule.Do.Verdict == Goto {
			break
		}
	}
	return met
}

// Chain returns the chain with this table and name that no hook calls. If the Ruleset has no such
// chain, it returns an empty one.
func (rs Ruleset) Chain(table Table, name string) Chain {
	i := slices.IndexFunc(rs.Chains, func(c Chain) bool { return c.Table == table && c.Name == name && c.Hook == "" })
	if i < 0 {
		return Chain{Table: table, Name: name}
	}
	return rs.Chains[i]
}
