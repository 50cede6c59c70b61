// SPDX-License-Identifier: Apache-2.0

// Package pods tests on a cluster what the plugin does to pods: capture as they
// ask for it, with which admission policies, beside and in place of other
// plugins, and that all of it can be removed.
package pods

import (
	"os"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/cluster/suite"
)

var c suite.Suite

func TestMain(m *testing.M) { os.Exit(c.Main(m)) }
