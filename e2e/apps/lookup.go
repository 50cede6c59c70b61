// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
)

// lookup prints a name's addresses, one a line.
func lookup(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	addresses, err := new(net.Resolver).LookupNetIP(ctx, "ip", name)
	if err != nil {
		return fmt.Errorf("looking up a name: %w", err)
	}
	for _, address := range addresses {
		fmt.Println(address.Unmap())
	}
	return nil
}
