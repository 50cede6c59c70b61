// SPDX-License-Identifier: Apache-2.0

// Package pods tests on a cluster what the plugin does for pods: capture by their
// annotations, admission policies, Multus and removal.
package pods

import (
	"os"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
)

var c suite.Suite

func TestMain(m *testing.M) { os.Exit(c.Main(m)) }
