// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"slices"

	"github.com/capture-cni/capture-cni/config"
)

// smoke is what make full expects of each kernel, and make kernels of another architecture's:
// every backend by the plugin's verbs, captured traffic in both modes, DNS, repairs and a user
// namespace; and what is refused.
var smoke = []Selection{
	{Package: "e2e/protocol", Tests: append(byBackend("TestBackendsByProtocol/", ""), "TestChain/1.1.0")},
	{Package: "e2e/traffic", Tests: slices.Concat(
		byBackend("TestScenarios/", "/defaults"), byBackend("TestScenarios/", "/TPROXY,_defaults"), byBackend("TestZones/", ""), []string{"TestUserNamespace"},
		byBackend("TestNoWayOut/", ""), byBackend("TestNoWayIn/", ""), byBackend("TestCookies/", ""), byBackend("TestRouterAdvertisement/", ""))},
	{Package: "e2e/guard", Tests: []string{"TestStates/no_rules", "TestConnectionsLiveOn/REDIRECT", "TestConnectionsLiveOn/TPROXY"}},
}

func byBackend(before, after string) (names []string) {
	for _, backend := range []config.Backend{config.NFTables, config.IPTablesNFT, config.IPTablesLegacy} {
		names = append(names, before+string(backend)+after)
	}
	return names
}
