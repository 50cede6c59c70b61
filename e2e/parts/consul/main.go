// SPDX-License-Identifier: Apache-2.0

// Program consul-redirect captures the traffic of its network namespace as consul-cni does: by
// the annotations redirect-traffic-config and dual-stack, its two arguments.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/hashicorp/consul/sdk/nftables"
)

func main() {
	var config nftables.Config
	err := json.Unmarshal([]byte(os.Args[1]), &config)
	if err == nil {
		err = nftables.Setup(config, os.Args[2] == "true")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
