// SPDX-License-Identifier: Apache-2.0

package netfilter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// attributes are those of one netlink message, by type.
type attributes map[uint16][]byte

// familyOf is where attributes keep the family that stands in the message's
// header; no attribute has the type 0.
const familyOf = 0

const dumpAttempts = 5

var errInterrupted = errors.New("the rules kept changing while they were read")

func dump(conn *netlink.Conn, family byte, request uint16, filter []netlink.Attribute) ([]attributes, error) {
	payload, err := netlink.MarshalAttributes(filter)
	if err != nil {
		return nil, fmt.Errorf("encoding a dump request: %w", err)
	}
	message := netlink.Message{
		Header: netlink.Header{
			Type:  netlink.HeaderType(unix.NFNL_SUBSYS_NFTABLES<<8 | request),
			Flags: netlink.Request | netlink.Dump,
		},
		Data: append([]byte{family, unix.NFNETLINK_V0, 0, 0}, payload...),
	}
	for range dumpAttempts {
		replies, err := conn.Execute(message)
		if err != nil {
			return nil, fmt.Errorf("reading nftables: %w", err)
		}
		if !slices.ContainsFunc(replies, interrupted) {
			return parseMessages(replies)
		}
	}
	return nil, errInterrupted
}

func interrupted(m netlink.Message) bool { return m.Header.Flags&netlink.DumpInterrupted != 0 }

func parseMessages(replies []netlink.Message) ([]attributes, error) {
	messages := make([]attributes, 0, len(replies))
	for _, reply := range replies {
		const headerLength = 4 // struct nfgenmsg
		if len(reply.Data) < headerLength {
			continue
		}
		parsed, err := parseAttributes(reply.Data[headerLength:])
		if err != nil {
			return nil, err
		}
		parsed[familyOf] = reply.Data[:1]
		messages = append(messages, parsed)
	}
	return messages, nil
}

func parseAttributes(data []byte) (attributes, error) {
	list, err := netlink.UnmarshalAttributes(data)
	if err != nil {
		return nil, fmt.Errorf("reading nftables: %w", err)
	}
	parsed := attributes{}
	for _, a := range list {
		parsed[a.Type&^netlink.Nested] = a.Data
	}
	return parsed, nil
}

// text is a NUL-terminated attribute.
func text(data []byte) string { return strings.TrimRight(string(data), "\x00") }

// nested follows a path of attributes, each within the one before.
func nested(data []byte, path ...uint16) ([]byte, bool) {
	for _, attribute := range path {
		parsed, err := parseAttributes(data)
		if err != nil {
			return nil, false
		}
		var ok bool
		if data, ok = parsed[attribute]; !ok {
			return nil, false
		}
	}
	return data, true
}

// bigEndian is a 64-bit attribute, 0 where it is none.
func bigEndian(data []byte) uint64 {
	if len(data) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(data)
}
