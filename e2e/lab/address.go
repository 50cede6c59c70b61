// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// FreeAddress is where a program that is about to start can listen. Until it
// does, nobody is likely to take the port: each address is of a host of its own
// in 127.0.0.0/8.
func FreeAddress() (string, error) {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254)))
	if err != nil {
		return "", fmt.Errorf("finding a port: %w", err)
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}
