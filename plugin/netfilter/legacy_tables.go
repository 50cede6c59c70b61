// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// legacyFamily locates a family's tables of iptables-legacy, which are not in
// nf_tables.
type legacyFamily struct {
	tables        string // file that lists the existing tables
	domain, level int
	address       int // length of the entry's first part, struct ipt_ip or ip6t_ip6
}

var legacyFamilies = map[capture.Family]legacyFamily{
	capture.IPv4: {"/proc/thread-self/net/ip_tables_names", unix.AF_INET, unix.IPPROTO_IP, 84},
	capture.IPv6: {"/proc/thread-self/net/ip6_tables_names", unix.AF_INET6, unix.IPPROTO_IPV6, 136},
}

func legacyTables() (tableList, error) {
	list := tableList{}
	for family, legacy := range legacyFamilies {
		names, err := os.ReadFile(legacy.tables)
		if err != nil {
			continue // this kernel, or this namespace, has none
		}
		for name := range strings.FieldsSeq(string(names)) {
			entries, err := legacy.entries(name)
			if err != nil {
				return nil, fmt.Errorf("reading the legacy %s table: %w", name, err)
			}
			list[tableOf{family, name}] = legacy.chains(entries)
		}
	}
	return list, nil
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

// entries reads a table's rules as the kernel holds them. The table must exist:
// reading it would create it. Errors: TooLarge.
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
	if info.entrySize > maxLegacy {
		return nil, TooLarge{"bytes of legacy rules in table " + table, maxLegacy}
	}
	buffer := make([]byte, entriesHeader+info.entrySize)
	copy(buffer, table)
	binary.NativeEndian.PutUint32(buffer[len(info.name):], info.entrySize)
	if err := getOption(fd, f.level, getEntries, unsafe.Pointer(&buffer[0]), uintptr(len(buffer))); err != nil {
		return nil, err
	}
	return buffer[entriesHeader:], nil
}

// Struct ipt_entry after its address: u32 nfcache, u16 target_offset, u16
// next_offset. At target_offset, struct xt_error_target: u16 size, char[29]
// name, u8 revision, and the chain's name.
const (
	targetOffset = 4
	nextOffset   = 6
	targetName   = 2
	chainName    = 32
	nameMax      = 30
)

// chains returns the names of the chains that are not built in. The kernel keeps a
// chain's name as an entry before its rules, with the target ERROR; a last such
// entry, which is no chain, ends the table.
func (f legacyFamily) chains(entries []byte) []string {
	var names []string
	for len(entries) > f.address+nextOffset+2 {
		target := int(binary.NativeEndian.Uint16(entries[f.address+targetOffset:]))
		next := int(binary.NativeEndian.Uint16(entries[f.address+nextOffset:]))
		if next <= 0 || next > len(entries) {
			break
		}
		if target+chainName+nameMax <= next && untilNUL(entries[target+targetName:next]) == "ERROR" {
			if name := untilNUL(entries[target+chainName : next]); name != "ERROR" {
				names = append(names, name)
			}
		}
		entries = entries[next:]
	}
	return names
}

// untilNUL returns the text before the first NUL.
func untilNUL(data []byte) string {
	before, _, _ := bytes.Cut(data, []byte{0})
	return string(before)
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
