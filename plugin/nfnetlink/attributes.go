// SPDX-License-Identifier: Apache-2.0

package nfnetlink

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Attributes maps the types of a netlink message's attributes to their contents. The contents are parts
// of the message, so code that keeps them for longer copies them.
type Attributes map[uint16][]byte

// Family is the key of the table's family in Attributes. The family is in the message's header, and no
// attribute has the type 0.
const Family = 0

var errMalformed = errors.New("reading nftables: an attribute has an invalid length")

// EachAttribute calls visit for each attribute in data. It does not copy the attributes, because a pod's
// sets can contain tens of thousands of elements. It returns visit's first error, or an error for
// malformed data. See struct nlattr in linux/netlink.h.
func EachAttribute(data []byte, visit func(kind uint16, content []byte) error) error {
	const header, alignment = 4, 4
	for len(data) > 0 {
		if len(data) < header {
			return errMalformed
		}
		length := int(binary.NativeEndian.Uint16(data))
		if length < header || length > len(data) {
			return errMalformed
		}
		kind := binary.NativeEndian.Uint16(data[2:]) &^ unix.NLA_F_NESTED
		if err := visit(kind, data[header:length]); err != nil {
			return err
		}
		aligned := (length + alignment - 1) &^ (alignment - 1)
		data = data[min(aligned, len(data)):]
	}
	return nil
}

func ParseAttributes(data []byte) (Attributes, error) {
	parsed := Attributes{}
	err := EachAttribute(data, func(kind uint16, content []byte) error {
		parsed[kind] = content
		return nil
	})
	return parsed, err
}

// parseMessage parses a message about one object.
func parseMessage(data []byte) (Attributes, error) {
	const header = 4 // struct nfgenmsg
	if len(data) < header {
		return nil, fmt.Errorf("reading nftables: a message of %d bytes: expected at least %d", len(data), header)
	}
	parsed, err := ParseAttributes(data[header:])
	if err != nil {
		return nil, err
	}
	parsed[Family] = data[:1]
	return parsed, nil
}

// Text returns the text of a NUL-terminated attribute.
func Text(data []byte) string { return strings.TrimRight(string(data), "\x00") }

// Nested returns the content of the attribute at the end of a path, in which each attribute contains
// the next one.
func Nested(data []byte, path ...uint16) (content []byte, found bool) {
	for _, wanted := range path {
		found = false
		err := EachAttribute(data, func(kind uint16, inner []byte) error {
			if kind == wanted {
				content, found = inner, true
			}
			return nil
		})
		if err != nil || !found {
			return nil, false
		}
		data = content
	}
	return content, found
}

// userComment is the type of a comment in a rule's user data (NFTNL_UDATA_RULE_COMMENT of libnftnl).
const userComment = 0

// UserComment returns the comment in a rule's user data. The kernel does not validate user data, so a
// process with NET_ADMIN in a pod can write malformed data.
func UserComment(data []byte) (comment string, found bool) {
	const header = 2 // one byte for the type, and one for the length
	for len(data) >= header {
		end := header + int(data[1])
		if end > len(data) {
			return "", false
		}
		if data[0] == userComment {
			return UntilNUL(data[header:end]), true
		}
		data = data[end:]
	}
	return "", false
}

// BigEndian returns a 64-bit attribute, or 0 if data has another length.
func BigEndian(data []byte) uint64 {
	if len(data) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(data)
}

// UntilNUL returns the text before the first NUL.
func UntilNUL(data []byte) string {
	before, _, _ := bytes.Cut(data, []byte{0})
	return string(before)
}
