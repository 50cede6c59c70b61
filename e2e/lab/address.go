// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// FreeAddress returns an address for a program that is about to listen. Each
// address has a random host in 127.0.0.0/8, so that another program is unlikely
// to take the port first.
func FreeAddress() (string, error) {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254)))
	if err != nil {
		return "", fmt.Errorf("finding a port: %w", err)
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}
