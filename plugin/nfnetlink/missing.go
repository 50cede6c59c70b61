// SPDX-License-Identifier: Apache-2.0

package nfnetlink

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/nlsocket"
)

// If a transaction needs a module, the kernel tries to load the module. If that fails, the kernel
// returns only an error number. The functions below find out which modules may be missing.

func dial() (nlsocket.Socket, error) {
	socket, err := nlsocket.Dial(unix.NETLINK_NETFILTER)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		err = Lacks(err, "nfnetlink")
	}
	return socket, err
}

// absent is the connection to a kernel without nfnetlink. It answers like a kernel without tables of
// nf_tables, because iptables-legacy works without nfnetlink.
type absent struct{}

// Send does nothing and returns no error.
func (absent) Send([]byte) error { return nil }

// Receive returns the kernel's error for a table or chain that does not exist.
func (absent) Receive(context.Context, func(syscall.NetlinkMessage) (bool, error)) error {
	return unix.ENOENT
}

// Close does nothing.
func (absent) Close() {}

// lacksNFTables reports whether the kernel has no nf_tables. The error of a failed list does not show
// this cause, but the error of an empty transaction does, so lacksNFTables sends one.
func lacksNFTables(ctx context.Context) bool {
	socket, err := dial()
	if err != nil {
		return false
	}
	defer socket.Close()
	return errors.Is(NewBatch().Exchange(ctx, socket), unix.EOPNOTSUPP)
}

// Lacks returns an error that says that the kernel lacks at least one of the modules, and how to load
// them.
func Lacks(err error, modules ...string) error {
	command := "modprobe "
	if len(modules) > 1 {
		command = "modprobe -a "
	}
	return Lacking{fmt.Errorf("the kernel lacks %s: "+
		"load the module on the node (%s; a file in /etc/modules-load.d for each boot), or use a kernel that has it, or another backend: %w",
		strings.Join(modules, " or "), command+strings.Join(modules, " "), err)}
}

// Lacking is the error for a kernel that lacks a module that the rules need.
type Lacking struct{ error }

func (l Lacking) Unwrap() error { return errors.Unwrap(l.error) }

// describe adds the failed chain, rule or set, and the modules that the kernel may lack, to the kernel's
// error about one message of the transaction.
func (b *Batch) describe(sequence uint32, fault error) error {
	if sequence == beginSequence {
		if errors.Is(fault, unix.EOPNOTSUPP) { // the kernel lacks the subsystem
			return Lacks(fault, "nf_tables")
		}
		return fault
	}
	messages, err := syscall.ParseNetlinkMessage(b.Content)
	if err != nil {
		return fault
	}
	for _, m := range messages {
		if m.Header.Seq == sequence {
			return describeMessage(m, fault)
		}
	}
	return fault
}

func describeMessage(m syscall.NetlinkMessage, fault error) error {
	object, err := parseMessage(m.Data)
	if err != nil {
		return fault
	}
	missing := errors.Is(fault, unix.ENOENT) || errors.Is(fault, unix.EOPNOTSUPP)
	switch m.Header.Type & 0xff {
	case unix.NFT_MSG_NEWCHAIN:
		kind := Text(object[unix.NFTA_CHAIN_TYPE])
		if missing && kind != "" {
			fault = Lacks(fault, "nft_chain_"+kind)
		}
		return fmt.Errorf("chain %s: %w", Text(object[unix.NFTA_CHAIN_NAME]), fault)
	case unix.NFT_MSG_NEWRULE:
		if modules := modulesOf(object[unix.NFTA_RULE_EXPRESSIONS]); missing && len(modules) > 0 {
			fault = Lacks(fault, modules...)
		}
		why, _ := UserComment(object[unix.NFTA_RULE_USERDATA])
		return fmt.Errorf("chain %s, rule %q: %w", Text(object[unix.NFTA_RULE_CHAIN]), why, fault)
	case unix.NFT_MSG_NEWSET, unix.NFT_MSG_NEWSETELEM:
		return fmt.Errorf("set %s: %w", Text(object[unix.NFTA_SET_NAME]), fault)
	}
	return fault
}

// ofFamily ends the names of the modules of expressions that differ by family. With the one for tables
// inet, modprobe also loads those for IPv4 and IPv6.
var ofFamily = map[string]string{"fib": "_inet", "reject": "_inet"}

// modulesOf returns a module's name, nft_ with the expression's name and ofFamily, for each of a rule's
// expressions that is not part of nf_tables.
func modulesOf(expressions []byte) (modules []string) {
	builtIn := " bitwise byteorder cmp counter dynset immediate lookup meta payload range rt "
	_ = EachAttribute(expressions, func(_ uint16, expression []byte) error {
		content, _ := Nested(expression, unix.NFTA_EXPR_NAME)
		if name := Text(content); name != "" && !strings.Contains(builtIn, " "+name+" ") {
			modules = append(modules, "nft_"+name+ofFamily[name])
		}
		return nil
	})
	return modules
}
