// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/plugin/nlsocket"
)

// The kernel loads a module that a transaction needs, where it is allowed to and there is
// one. Otherwise its error is a number that does not say which.

// dial opens the socket of all requests to nf_tables.
func dial() (nlsocket.Socket, error) {
	socket, err := nlsocket.Dial(unix.NETLINK_NETFILTER)
	return socket, missingSocket(err)
}

// missingSocket says why there is no netlink socket.
func missingSocket(err error) error {
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return lacks("nfnetlink", err)
	}
	return err
}

// lacks names the module that an error is about.
func lacks(module string, err error) error {
	return fmt.Errorf("the kernel lacks %s: load the module on the node (modprobe %s; a file in /etc/modules-load.d for each boot), or use a kernel that has it: %w", module, module, err)
}

// describe returns the kernel's error about one message of the transaction, with the
// chain and the rule that failed, and the module that the kernel lacks.
func (b *batch) describe(sequence uint32, fault error) error {
	if sequence == beginSequence {
		if errors.Is(fault, unix.EOPNOTSUPP) { // it has no such subsystem
			return lacks("nf_tables", fault)
		}
		return fault
	}
	messages, err := syscall.ParseNetlinkMessage(b.content)
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
		kind := text(object[unix.NFTA_CHAIN_TYPE])
		if missing && kind != "" {
			fault = lacks("nft_chain_"+kind, fault)
		}
		return fmt.Errorf("chain %s: %w", text(object[unix.NFTA_CHAIN_NAME]), fault)
	case unix.NFT_MSG_NEWRULE:
		if modules := modulesOf(object[unix.NFTA_RULE_EXPRESSIONS]); missing && len(modules) > 0 {
			fault = lacks(strings.Join(modules, " or "), fault)
		}
		why, _ := userComment(object[unix.NFTA_RULE_USERDATA])
		return fmt.Errorf("chain %s, rule %q: %w", text(object[unix.NFTA_RULE_CHAIN]), why, fault)
	case unix.NFT_MSG_NEWSET, unix.NFT_MSG_NEWSETELEM:
		return fmt.Errorf("set %s: %w", text(object[unix.NFTA_SET_NAME]), fault)
	}
	return fault
}

// modulesOf returns the modules that a rule's expressions need beyond nf_tables itself.
func modulesOf(expressions []byte) (modules []string) {
	builtIn := " bitwise byteorder cmp counter dynset immediate lookup meta payload range rt "
	_ = eachAttribute(expressions, func(_ uint16, expression []byte) error {
		content, _ := nested(expression, unix.NFTA_EXPR_NAME)
		if name := text(content); name != "" && !strings.Contains(builtIn, " "+name+" ") {
			modules = append(modules, "nft_"+name)
		}
		return nil
	})
	return modules
}
