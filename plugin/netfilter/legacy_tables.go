// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"
	"os"
	"slices"
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

// legacyNames returns the tables that exist, those of IPv4 first.
func legacyNames() (names []tableOf) {
	for _, family := range []capture.Family{capture.IPv4, capture.IPv6} {
		list, _ := os.ReadFile(legacyFamilies[family].tables) // a kernel or a namespace can have none
		for name := range strings.FieldsSeq(string(list)) {
			names = append(names, tableOf{family, name})
		}
	}
	return names
}

func legacyTables() (tableList, error) {
	list := tableList{}
	for _, table := range legacyNames() {
		entries, err := table.legacyEntries()
		if err != nil {
			return nil, err
		}
		list[table] = legacyFamilies[table.family].chains(entries)
	}
	return list, nil
}

// legacyEntries reads the table's rules. Errors: TooLarge.
func (t tableOf) legacyEntries() ([]byte, error) {
	entries, err := legacyFamilies[t.family].entries(t.name)
	if err != nil {
		return nil, fmt.Errorf("reading the legacy %s table: %w", t.name, err)
	}
	return entries, nil
}

// legacyObstruction is Obstruction for the tables of iptables-legacy. Those named
// here have built-in chains in front of ours.
func legacyObstruction() (string, error) {
	for _, table := range legacyNames() {
		if !slices.Contains([]capture.Table{capture.Raw, capture.Mangle, capture.NAT}, capture.Table(table.name)) {
			continue
		}
		entries, err := table.legacyEntries()
		if err != nil {
			return "", err
		}
		for target := range legacyFamilies[table.family].targets(entries) {
			if !isHarmlessTarget(target) {
				return fmt.Sprintf("target %q in legacy %s table %s, in front of the capture rules", target, table.family, table.name), nil
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

// entries reads a table's rules as the kernel holds them. The table must exist:
// reading it would create it. A raw socket, which iptables uses, would need
// CAP_NET_RAW. Errors: TooLarge.
func (f legacyFamily) entries(table string) ([]byte, error) {
	fd, err := unix.Socket(f.domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
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
	for target, chain := range f.targets(entries) {
		if target == "ERROR" && chain != "" && chain != "ERROR" {
			names = append(names, chain)
		}
	}
	return names
}

// targets iterates over the names of the rules' targets, "" for a plain verdict or
// a jump, and the names that follow those long enough to hold one.
func (f legacyFamily) targets(entries []byte) iter.Seq2[string, string] {
	return func(yield func(target, chain string) bool) {
		for len(entries) > f.address+nextOffset+2 {
			target := int(binary.NativeEndian.Uint16(entries[f.address+targetOffset:]))
			next := int(binary.NativeEndian.Uint16(entries[f.address+nextOffset:]))
			if next <= 0 || next > len(entries) || target+targetName > next {
				return
			}
			chain := ""
			if target+chainName+nameMax <= next {
				chain = untilNUL(entries[target+chainName : next])
			}
			if !yield(untilNUL(entries[target+targetName:next]), chain) {
				return
			}
			entries = entries[next:]
		}
	}
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

// isHarmlessTarget reports whether a target of iptables, of either variant,
// changes nothing that decides about capture. "" is a plain verdict; ERROR marks
// the beginning of a chain.
func isHarmlessTarget(name string) bool {
	switch name {
	case "", "ERROR", "LOG", "NFLOG", "REJECT", "TRACE", "TCPMSS", "CHECKSUM", "SNAT", "MASQUERADE":
		return true
	}
	return false
}
