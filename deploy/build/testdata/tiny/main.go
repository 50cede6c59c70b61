// SPDX-License-Identifier: Apache-2.0

// Command tiny stands for the product's programs, and is built in a second. It consists of
// modules of others, too, whose licences an archive has.
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
