// SPDX-License-Identifier: Apache-2.0

// Package xtables reads the tables of iptables-legacy from the kernel. It executes no
// program: those of iptables create a table to list it.
package xtables

import (
	"encoding/binary"
	"fmt"
	"iter"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// Table names one of iptables' tables.
type Table struct {
	Family capture.Family
	Name   string
}

// Tables holds the names of each table's chains.
type Tables map[Table][]string

// family locates a family's tables.
type family struct {
	tables        string // file that lists the existing tables
	domain, level int
	address       int // length of the entry's first part, struct ipt_ip or ip6t_ip6
}

var families = map[capture.Family]family{
	capture.IPv4: {"/proc/thread-self/net/ip_tables_names", unix.AF_INET, unix.IPPROTO_IP, 84},
	capture.IPv6: {"/proc/thread-self/net/ip6_tables_names", unix.AF_INET6, unix.IPPROTO_IPV6, 136},
}

// Names returns the tables that exist, those of IPv4 first.
func Names() (names []Table) {
	for _, family := range []capture.Family{capture.IPv4, capture.IPv6} {
		list, _ := os.ReadFile(families[family].tables) // a kernel or a namespace can have none
		for name := range strings.FieldsSeq(string(list)) {
			names = append(names, Table{family, name})
		}
	}
	return names
}

// List returns the tables that exist, with the chains that are not built in. Errors:
// TooLarge.
func List() (Tables, error) {
	list, left := Tables{}, MaxEntries
	for _, table := range Names() {
		entries, err := table.entries(left)
		if err != nil {
			return nil, err
		}
		left -= len(entries)
		list[table] = families[table.Family].chains(entries)
	}
	return list, nil
}

// Entries reads the table's rules. Errors: TooLarge.
func (t Table) Entries() ([]byte, error) { return t.entries(MaxEntries) }

func (t Table) entries(limit int) ([]byte, error) {
	entries, err := families[t.Family].entries(t.Name, limit)
	if err != nil {
		return nil, fmt.Errorf("reading the legacy %s table: %w", t.Name, err)
	}
	return entries, nil
}

// FindTarget returns the first target of the table's rules that is wanted, "" for none. A
// target is "" for a plain verdict or a jump, and ERROR for the beginning of a chain.
// Errors: TooLarge.
func (t Table) FindTarget(wanted func(target string) bool) (string, error) {
	entries, err := t.Entries()
	if err != nil {
		return "", err
	}
	for target := range families[t.Family].targets(entries) {
		if wanted(target) {
			return target, nil
		}
	}
	return "", nil
}

// MaxEntries bounds the bytes of the rules of all tables together; nfnetlink's limits say
// why. A rule of ours takes less than 300.
const MaxEntries = 400 * capture.MaxExpanded

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

// entries reads a table's rules as the kernel holds them. The table must exist: reading it
// would create it. Errors: TooLarge, before more bytes than limit are read.
func (f family) entries(table string, limit int) ([]byte, error) {
	// A raw socket, which iptables uses, would need CAP_NET_RAW.
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
	if int(info.entrySize) > limit {
		return nil, nfnetlink.TooLarge{What: "bytes of legacy rules", Limit: MaxEntries}
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
func (f family) chains(entries []byte) []string {
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
func (f family) targets(entries []byte) iter.Seq2[string, string] {
	return func(yield func(target, chain string) bool) {
		for len(entries) > f.address+nextOffset+2 {
			target := int(binary.NativeEndian.Uint16(entries[f.address+targetOffset:]))
			next := int(binary.NativeEndian.Uint16(entries[f.address+nextOffset:]))
			if next <= 0 || next > len(entries) || target+targetName > next {
				return
			}
			chain := ""
			if target+chainName+nameMax <= next {
				chain = nfnetlink.UntilNUL(entries[target+chainName : next])
			}
			if !yield(nfnetlink.UntilNUL(entries[target+targetName:next]), chain) {
				return
			}
			entries = entries[next:]
		}
	}
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
