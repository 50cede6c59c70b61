// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// legacyFamily is where a family keeps the tables of iptables' older variant,
// which nf_tables knows nothing of.
type legacyFamily struct {
	tables        string // file that lists the tables that exist
	domain, level int
}

var legacyFamilies = []legacyFamily{
	{"/proc/thread-self/net/ip_tables_names", unix.AF_INET, unix.IPPROTO_IP},
	{"/proc/thread-self/net/ip6_tables_names", unix.AF_INET6, unix.IPPROTO_IPV6},
}

// legacyCapture looks for another plugin's chains in the legacy nat tables of
// the calling thread's namespace and names the first one, or gives "". It asks
// only for tables that are there: to ask for one would create it.
func legacyCapture() (string, error) {
	for _, family := range legacyFamilies {
		names, err := os.ReadFile(family.tables)
		if err != nil || !slices.Contains(strings.Fields(string(names)), "nat") {
			continue // not there: this kernel, or this namespace, has none
		}
		entries, err := family.entries("nat")
		if err != nil {
			return "", fmt.Errorf("reading the legacy nat table: %w", err)
		}
		for _, chain := range foreignChains {
			// A chain's name stands in the entry that it begins with, padded with NULs.
			if bytes.Contains(entries, append([]byte(chain), 0)) {
				return "nat/" + chain, nil
			}
		}
	}
	return "", nil
}

// Socket options of include/uapi/linux/netfilter_ipv4/ip_tables.h, the same for IPv6.
const (
	getInfo    = 64 // IPT_SO_GET_INFO
	getEntries = 65 // IPT_SO_GET_ENTRIES
)

// tableInfo is struct ipt_getinfo.
type tableInfo struct {
	name                  [32]byte
	validHooks            uint32
	hookEntry, underflow  [5]uint32
	entryCount, entrySize uint32
}

// entriesHeader is the length of struct ipt_get_entries before its entries,
// which are aligned to eight bytes.
const entriesHeader = 40

// entries reads a table's rules, as the kernel holds them.
func (f legacyFamily) entries(table string) ([]byte, error) {
	fd, err := unix.Socket(f.domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written to it
	var info tableInfo
	copy(info.name[:], table)
	if err := getOption(fd, f.level, getInfo, unsafe.Pointer(&info), unsafe.Sizeof(info)); err != nil {
		return nil, err
	}
	buffer := make([]byte, entriesHeader+info.entrySize)
	copy(buffer, table)
	binary.NativeEndian.PutUint32(buffer[len(info.name):], info.entrySize)
	if err := getOption(fd, f.level, getEntries, unsafe.Pointer(&buffer[0]), uintptr(len(buffer))); err != nil {
		return nil, err
	}
	return buffer[entriesHeader:], nil
}

func getOption(fd, level, option int, value unsafe.Pointer, length uintptr) error {
	size := uint32(length)
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(value), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
