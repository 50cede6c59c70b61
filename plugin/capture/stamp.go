// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

const (
	// rulesVersion grows with every release whose rules, or whose Stamps, differ
	// for the same Intent.
	rulesVersion = 3

	// textVersion is the last version whose Stamps hold a hash of the Ruleset as
	// text for nft. Later ones hold a hash of its data.
	textVersion = 2
)

// StampPrefix begins every Stamp, of any version.
const StampPrefix = "capture-cni rules v"

// Stamp identifies the Ruleset in the kernel: the version of the rules, the
// families captured and a hash of all rules.
func (rs Ruleset) Stamp() string {
	if rs.stampOfText {
		return rs.stamp(textVersion, rs.body())
	}
	return rs.stamp(rulesVersion, rs.encode())
}

func (rs Ruleset) stamp(version int, hashed []byte) string {
	families := IPv4
	if rs.IPv6 {
		families += "," + IPv6
	}
	sum := sha256.Sum256(hashed)
	return fmt.Sprintf("%s%d %s %s", StampPrefix, version, families, hex.EncodeToString(sum[:16]))
}

// StampedAs returns the Ruleset as an ADD wrote it that left this stamp in the
// kernel: the same rules, with the Stamp of this version or of textVersion. own
// reports whether the stamp is either; if not, the Ruleset is returned as it is.
func (rs Ruleset) StampedAs(stamp string) (as Ruleset, own bool) {
	former := rs
	former.stampOfText = true
	switch stamp {
	case rs.Stamp():
		return rs, true
	case former.Stamp():
		return former, true
	}
	return rs, false
}

// IsStamp reports whether a text is a Stamp, of any version.
func IsStamp(text string) bool { return strings.HasPrefix(text, StampPrefix) }

// StampCovers reports whether the rules of a stamp capture a family.
func StampCovers(stamp string, family Family) bool {
	fields := strings.Fields(stamp)
	return len(fields) > 3 && slices.Contains(strings.Split(fields[3], ","), string(family))
}

// encode returns all data of the Ruleset, such that different Rulesets have
// different encodings. Comments and names of sets are part of it: the kernel
// holds them, and CHECK compares them. A field that is not set is left out, so
// that a field which a later version adds leaves the Stamps of other rules alone.
func (rs Ruleset) encode() []byte {
	var e encoding
	set(&e, "ipv6", rs.IPv6)
	set(&e, "local mark", rs.LocalMark)
	for _, chain := range rs.Chains {
		add(&e, "chain", string(chain.Table), string(chain.Hook), chain.Name)
		for _, rule := range chain.Rules {
			add(&e, "rule", rule.Why)
			rule.Match.encode(&e)
			rule.Do.encode(&e)
		}
	}
	return e
}

func (m Match) encode(e *encoding) {
	set(e, "family", m.Family)
	set(e, "protocol", m.Protocol)
	addList(e, "in", m.In)
	addList(e, "out", m.Out)
	addList(e, "src", m.Src)
	addList(e, "dst", m.Dst)
	addList(e, "src port", m.SrcPort)
	addList(e, "dst port", m.DstPort)
	addList(e, "uid", m.UID)
	addList(e, "gid", m.GID)
	set(e, "mark", m.Mark)
	set(e, "except mark", m.ExceptMark)
	set(e, "conn mark", m.ConnMark)
	set(e, "established", m.Established)
	set(e, "invalid", m.Invalid)
	set(e, "begins", m.Begins)
}

func (do Action) encode(e *encoding) {
	set(e, "verdict", do.Verdict)
	set(e, "to chain", do.Chain)
	set(e, "to port", do.Port)
	set(e, "set mark", do.Mark)
	set(e, "set zone", do.Zone)
}

// encoding is a sequence of fields: each its name, the number of its values, and
// these, every text behind its length.
type encoding []byte

func add[T any](e *encoding, field string, values ...T) {
	e.text(field)
	*e = binary.AppendUvarint(*e, uint64(len(values)))
	for _, value := range values {
		e.text(fmt.Sprint(value))
	}
}

func (e *encoding) text(text string) {
	*e = append(binary.AppendUvarint(*e, uint64(len(text))), text...)
}

// set adds a single value, unless it is zero.
func set[T comparable](e *encoding, field string, value T) {
	if value != *new(T) {
		add(e, field, value)
	}
}

// addList adds a list, unless it is empty. A single value is in no set, so that
// the list's name does not count.
func addList[T any](e *encoding, field string, list List[T]) {
	if len(list.Values) > 1 {
		add(e, field+" set", list.Name)
	}
	if len(list.Values) > 0 {
		add(e, field, list.Values...)
	}
}
