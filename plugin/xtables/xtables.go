// SPDX-License-Identifier: Apache-2.0

// Package xtables reads the tables of iptables-legacy from the kernel. It does not execute the programs
// of iptables, because they create a missing table when they list it.
package xtables

import (
	"encoding/binary"
	"errors"
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

// Tables maps each table to the names of its chains. With iptables-legacy, the built-in chains are
// missing.
type Tables map[Table][]string

// family contains the kernel's constants for the tables of one IP family.
type family struct {
	tables        string // file that lists the existing tables
	domain, level int
	address       int // length of the entry's first part, struct ipt_ip or ip6t_ip6
}

var families = map[capture.Family]family{
	capture.IPv4: {"/proc/thread-self/net/ip_tables_names", unix.AF_INET, unix.IPPROTO_IP, 84},
	capture.IPv6: {"/proc/thread-self/net/ip6_tables_names", unix.AF_INET6, unix.IPPROTO_IPV6, 136},
}

// Names returns the existing tables, first those of IPv4.
func Names() (names []Table) {
	for _, family := range []capture.Family{capture.IPv4, capture.IPv6} {
		list, _ := os.ReadFile(families[family].tables) // a kernel or a namespace without tables can lack the file
		for name := range strings.FieldsSeq(string(list)) {
			names = append(names, Table{family, name})
		}
	}
	return names
}

// List returns the existing tables, with their chains except the built-in ones. Errors:
// nfnetlink.TooLarge, nfnetlink.ErrChanging.
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

// Entries reads the table's rules. Errors: nfnetlink.TooLarge, nfnetlink.ErrChanging.
func (t Table) Entries() ([]byte, error) { return t.entries(MaxEntries) }

// readAttempts limits the attempts to read a table that changes meanwhile.
const readAttempts = 5

func (t Table) entries(limit int) (entries []byte, err error) {
	for range readAttempts {
		// EAGAIN means that the table's size changed between the two system calls, so entries reads the
		// table again.
		if entries, err = families[t.Family].entries(t.Name, limit); !errors.Is(err, unix.EAGAIN) {
			break
		}
		err = nfnetlink.ErrChanging
	}
	if err != nil {
		return nil, fmt.Errorf("reading the legacy %s table %s: %w", t.Family, t.Name, err)
	}
	return entries, nil
}

// FindTarget returns the first target in the table's rules for which wanted returns true, or "". A
// verdict or a jump has the target "", and the entry before a chain's rules, which names the chain, has
// the target ERROR. Errors: nfnetlink.TooLarge, nfnetlink.ErrChanging.
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

// MaxEntries limits the bytes of rules that Entries reads in one table, and List in all tables together,
// because a pod with NET_ADMIN can fill its tables. Most of our rules take fewer than 400 bytes, because
// at most one of the iptables rules for a Rule has a comment.
const MaxEntries = 400 * capture.MaxExpanded

// Socket options from include/uapi/linux/netfilter_ipv4/ip_tables.h. IPv6 has the same numbers.
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

// entriesHeader is the length of the part of struct ipt_get_entries before the entries, which are
// aligned to eight bytes.
const entriesHeader = 40

// entries reads a table's rules in the kernel's format. The table should exist, because reading a missing
// table creates it. If the rules have more than limit bytes, entries returns nfnetlink.TooLarge without
// reading them. It returns EAGAIN if the table's size changed meanwhile.
func (f family) entries(table string, limit int) ([]byte, error) {
	// This code uses a datagram socket, because a raw socket, which iptables uses, needs CAP_NET_RAW.
	fd, err := unix.Socket(f.domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }() // a failed close loses nothing, because nothing was written
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

// targetOffset and nextOffset are offsets in struct ipt_entry or ip6t_entry, after its struct ipt_ip or
// ip6t_ip6: u32 nfcache, u16 target_offset, u16 next_offset. At target_offset, the entry's target begins.
// targetName and chainName are offsets in struct xt_error_target, the target of an entry with a chain's
// name: u16 size, char[29] name, u8 revision, and the chain's name. All targets begin with size and name.
const (
	targetOffset = 4
	nextOffset   = 6
	targetName   = 2
	chainName    = 32
	nameMax      = 30
)

// chains returns the names of the chains, except the built-in ones. An entry with the target ERROR
// before the chain's rules contains the name. The table's last entry also has this target, but begins
// no chain.
func (f family) chains(entries []byte) []string {
	var names []string
	for target, chain := range f.targets(entries) {
		if target == "ERROR" && chain != "" && chain != "ERROR" {
			names = append(names, chain)
		}
	}
	return names
}

// targets iterates over the names of the rules' targets. The name is "" for a plain verdict or a jump.
// After the target ERROR, the second value is a chain's name; after other targets, it means nothing. It
// is "" if the target is too short for a name.
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
