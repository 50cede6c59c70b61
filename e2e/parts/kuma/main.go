// SPDX-License-Identifier: Apache-2.0

// Program kuma-redirect captures the traffic of its network namespace as Kuma 1.8 does: by its
// argument, a configuration as JSON.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	transparentproxy "github.com/kumahq/kuma-net/transparent-proxy"
	"github.com/kumahq/kuma-net/transparent-proxy/config"
)

func main() {
	c := config.Config{RuntimeStdout: os.Stdout, RuntimeStderr: os.Stderr}
	err := json.Unmarshal([]byte(os.Args[1]), &c)
	if err == nil {
		_, err = transparentproxy.Setup(c)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
