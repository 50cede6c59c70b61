// SPDX-License-Identifier: Apache-2.0

package report

import "github.com/capture-cni/capture-cni/config"

// NodeTraffic is the traffic of a node's pods.
type NodeTraffic struct {
	Form int       `json:"form"`
	Pods []Traffic `json:"pods"`
}

// Traffic contains the numbers of a pod's connections, since its rules were written.
type Traffic struct {
	Namespace   string          `json:"namespace"`
	Name        string          `json:"name"`
	Mesh        config.MeshName `json:"mesh,omitempty"`
	State       Code            `json:"state"`
	Connections []Connections   `json:"connections,omitempty"` // omits outcomes without connections
	Unknown     string          `json:"unknown,omitempty"`     // why the numbers are not known
}

// Connections is the number of connections, or of refused packets, for which the rules made one decision
// for one reason.
type Connections struct {
	Decision string `json:"decision"`
	Reason   string `json:"reason"`
	Count    int64  `json:"count"`
}

// Sum returns the number of connections with a decision, for any reason.
func (t Traffic) Sum(decision string) (sum int64) {
	for _, c := range t.Connections {
		if c.Decision == decision {
			sum += c.Count
		}
	}
	return sum
}
