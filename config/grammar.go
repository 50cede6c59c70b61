// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// ParsePort parses a decimal port number from 0 to 65535. It returns an error for a leading zero,
// because some programs, such as iptables, parse a number with a leading zero as octal.
func ParsePort(s string) (uint16, error) {
	const want = "expected a decimal port number from 0 to 65535"
	switch {
	case s == "":
		return 0, errors.New("empty element: " + want)
	case s == "*":
		return 0, errors.New(`"*" cannot be part of a list or of an exception: ` + want)
	case len(s) > 1 && s[0] == '0':
		return 0, fmt.Errorf("%s has a leading zero: %s without one", Quoted(s), want)
	}
	port, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%s: %s", Quoted(s), want)
	}
	return uint16(port), nil
}

// ParsePrefix parses an IPv4 or IPv6 range in CIDR form, and clears the bits after the prefix. It
// returns an error for a single address and for an IPv4-mapped range.
func ParsePrefix(s string) (netip.Prefix, error) {
	const want = "expected a range such as 10.0.0.0/8 or 2001:db8::/32"
	switch {
	case s == "":
		return netip.Prefix{}, errors.New("empty element: " + want)
	case s == "*":
		return netip.Prefix{}, errors.New(`"*" cannot be part of a list or of an exception: ` + want)
	}
	if addr, err := netip.ParseAddr(s); err == nil {
		addr = addr.Unmap().WithZone("")
		return netip.Prefix{}, fmt.Errorf("%s is an address: %s; for this one address write %s/%d", Quoted(s), want, addr, addr.BitLen())
	}
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%s: %s", Quoted(s), want)
	}
	if prefix.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%s is an IPv4-mapped range: write it as IPv4", Quoted(s))
	}
	return prefix.Masked(), nil
}

// ParseInterface returns the text if it is a valid interface name. The kernel accepts more names, even
// some that iptables would parse as an option or a wildcard.
func ParseInterface(s string) (string, error) {
	const want = "expected an interface name: a letter, then up to 14 letters, digits, dots, dashes or underscores"
	if s == "" {
		return "", errors.New("empty element: " + want)
	}
	if !isInterfaceName(s) {
		return "", fmt.Errorf("%s: %s", Quoted(s), want)
	}
	return s, nil
}

func isInterfaceName(s string) bool {
	isLetter := func(r rune) bool { return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' }
	isForbidden := func(r rune) bool { return !isLetter(r) && !strings.ContainsRune("0123456789_.-", r) }
	return len(s) <= 15 && isLetter(rune(s[0])) && !strings.ContainsFunc(s, isForbidden)
}
