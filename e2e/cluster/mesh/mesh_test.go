// SPDX-License-Identifier: Apache-2.0

// Package mesh tests on a cluster with Istio's own programs: istiod injects pods, its
// agents run the sidecars, and istio-cni is what a cluster migrates from and to. Envoy
// is a stand-in, except in TestMutualTLS.
package mesh

import (
	"os"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
)

var c = suite.Suite{Istio: true}

func TestMain(m *testing.M) { os.Exit(c.Main(m)) }
