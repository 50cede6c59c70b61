// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/vishvananda/netlink"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// The cluster's addresses. Nodes are counted from 1.
const (
	controlIPv4, controlIPv6   = "192.168.77.100", "fd00:77::100"
	outsideIPv4, outsideIPv6   = "198.51.100.10", "2001:db8:100::10" // outside of the cluster, on the control box
	servicesIPv4, servicesIPv6 = "10.96.0.0/16", "fd00:96::/108"
	firstService               = "10.96.0.1" // the API server's own
)

func nodeIPv4(n int) string { return fmt.Sprintf("192.168.77.%d", n) }
func nodeIPv6(n int) string { return fmt.Sprintf("fd00:77::%d", n) }
func podsIPv4(n int) string { return fmt.Sprintf("10.88.%d.0/24", n) }
func podsIPv6(n int) string { return fmt.Sprintf("fd00:88:%d::/64", n) }

// startNetwork starts the box with the bridge that the others are plugged into.
func (c *Cluster) startNetwork() error {
	var err error
	if c.Switch, err = startBox("switch", c.Dir, nil, ""); err != nil {
		return err
	}
	host, err := c.Switch.Host()
	if err != nil {
		return err
	}
	defer host.NetNS.Close()
	return host.Do(func() error {
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "switch"}}); err != nil {
			return fmt.Errorf("creating a bridge: %w", err)
		}
		return host.AddAddresses("switch")
	})
}

// plug connects the eth0 of a box to the bridge.
func (c *Cluster) plug(b *Box, addresses ...string) error {
	host, err := b.Host()
	if err != nil {
		return err
	}
	defer host.NetNS.Close()
	center, err := c.Switch.Host()
	if err != nil {
		return err
	}
	defer center.NetNS.Close()
	if err := center.Do(func() error { return unplug(b.Name) }); err != nil {
		return fmt.Errorf("plugging %s in: %w", b.Name, err)
	}
	if err := lab.Link(
		lab.Interface{Host: host, Name: "eth0", Addresses: addresses},
		lab.Interface{Host: center, Name: b.Name},
	); err != nil {
		return err
	}
	err = center.Do(func() error {
		port, err := netlink.LinkByName(b.Name)
		if err != nil {
			return err
		}
		bridge, err := netlink.LinkByName("switch")
		if err != nil {
			return err
		}
		return netlink.LinkSetMaster(port, bridge)
	})
	if err != nil {
		return fmt.Errorf("plugging %s in: %w", b.Name, err)
	}
	return host.Do(func() error {
		return errors.Join(
			os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0),
			os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0),
		)
	})
}

// unplug removes a port of the bridge that the kernel has not removed yet after
// the end of its box.
func unplug(port string) error {
	link, err := netlink.LinkByName(port)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := netlink.LinkDel(link); err != nil && !errors.Is(err, syscall.ENODEV) {
		return err
	}
	return nil
}

// route adds routes to the pods of other nodes to a box.
func route(b *Box, except, nodes int) error {
	host, err := b.Host()
	if err != nil {
		return err
	}
	defer host.NetNS.Close()
	return host.Do(func() error {
		for n := 1; n <= nodes; n++ {
			if n == except {
				continue
			}
			for pods, node := range map[string]string{podsIPv4(n): nodeIPv4(n), podsIPv6(n): nodeIPv6(n)} {
				destination, err := netlink.ParseIPNet(pods)
				if err != nil {
					return err
				}
				if err := netlink.RouteReplace(&netlink.Route{Dst: destination, Gw: net.ParseIP(node)}); err != nil {
					return fmt.Errorf("routing %s by %s: %w", pods, node, err)
				}
			}
		}
		return nil
	})
}

// routeServices routes the API server's connections to services, such as webhooks, by
// the first node, whose kube-proxy translates them.
func (c *Cluster) routeServices() error {
	host, err := c.Control.Host()
	if err != nil {
		return err
	}
	defer host.NetNS.Close()
	return host.Do(func() error {
		services, err := netlink.ParseIPNet(servicesIPv4)
		if err != nil {
			return err
		}
		return netlink.RouteReplace(&netlink.Route{Dst: services, Gw: net.ParseIP(nodeIPv4(1))})
	})
}
