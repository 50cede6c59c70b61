// SPDX-License-Identifier: Apache-2.0

// Command tiny is built by tests instead of the product's programs, because it builds within a second.
// It imports modules of other projects, whose licences an archive must contain.
package main

import (
	"fmt"

	"golang.org/x/time/rate"
	"sigs.k8s.io/yaml"

	"github.com/capture-cni/capture-cni/config"
)

func main() {
	text, err := yaml.Marshal(rate.Every(1))
	fmt.Println(config.OwnVersion(), string(text), err)
}
