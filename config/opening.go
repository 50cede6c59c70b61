// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Opening is an exception from a pod's fence, which refuses packets that bypass the proxy. An Opening
// permits packets of Protocol in one direction between the pod and Range, to the receiver's ports from
// First to Last, and answers to these packets.
type Opening struct {
	Inbound     bool   // Range sends to the pod's ports; if false, the pod sends to Range's ports
	Protocol    string // tcp or udp
	First, Last uint16
	Range       netip.Prefix
}

// ParseOpening parses an exception in the form DIRECTION:PROTOCOL:PORTS@RANGE.
func ParseOpening(text string) (o Opening, err error) {
	sent, address, _ := strings.Cut(text, "@")
	fields := strings.Split(sent, ":")
	if len(fields) != 3 || !slices.Contains([]string{"in", "out"}, fields[0]) || !slices.Contains([]string{"tcp", "udp"}, fields[1]) {
		return o, fmt.Errorf("%s: expected DIRECTION:PROTOCOL:PORTS@RANGE, such as out:udp:53@10.96.0.10/32 or in:tcp:8000-8080@10.0.0.0/8",
			Quoted(text))
	}
	o.Inbound, o.Protocol = fields[0] == "in", fields[1]
	var portFault, rangeFault error
	o.First, o.Last, portFault = ParsePortRange(fields[2])
	o.Range, rangeFault = ParsePrefix(address)
	return o, errors.Join(portFault, rangeFault)
}

// String returns the form that ParseOpening parses.
func (o Opening) String() string {
	direction, ports := "out", fmt.Sprint(o.First)
	if o.Inbound {
		direction = "in"
	}
	if o.Last != o.First {
		ports += fmt.Sprint("-", o.Last)
	}
	return fmt.Sprintf("%s:%s:%s@%s", direction, o.Protocol, ports, o.Range)
}

// Permits reports whether an element of the operator's limit contains the exception. A nil limit
// permits every exception.
func Permits(limit []Opening, o Opening) bool {
	return limit == nil || slices.ContainsFunc(limit, func(l Opening) bool {
		return l.Inbound == o.Inbound && l.Protocol == o.Protocol && l.First <= o.First && o.Last <= l.Last &&
			l.Range.Bits() <= o.Range.Bits() && l.Range.Contains(o.Range.Addr())
	})
}

// openings parses the list of the key fenceLimit. It returns nil, which permits every exception, if one
// of the elements is "*". For an empty list, which permits none, it returns a list that is not nil.
func openings(raw json.RawMessage) ([]Opening, error) {
	every := false
	list, err := each(func(raw json.RawMessage) (Opening, error) {
		text, err := typed[string](raw, "an exception in quotes")
		if every = every || text == "*"; err != nil || text == "*" {
			return Opening{}, err
		}
		return ParseOpening(text)
	})(raw)
	if every {
		return nil, err
	}
	return append([]Opening{}, list...), err
}

// ParsePortRange parses one port, or the first and the last port of a range with a dash between them.
func ParsePortRange(text string) (first, last uint16, err error) {
	low, high, isRange := strings.Cut(text, "-")
	if first, err = ParsePort(low); err != nil {
		return 0, 0, err
	}
	if last = first; isRange {
		last, err = ParsePort(high)
	}
	if err == nil && last < first {
		err = fmt.Errorf("%s: expected the lower port first", Quoted(text))
	}
	return first, last, err
}
