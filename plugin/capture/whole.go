// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/capture-cni/capture-cni/config"
)

// wholeText returns the annotation that contains all lists of the mesh (see mesh.whole). If the
// annotation is absent or too long, wholeText adds a fault and returns false.
func (d *decider) wholeText(expected string) (text string, ok bool) {
	if text, ok = d.pod.Annotations[d.mesh.whole]; !ok {
		d.keyFault(d.mesh.whole, "it is absent: expected "+expected)
		return "", false
	}
	return text, d.withinLimits(d.mesh.whole, text)
}

// wholeFault adds a fault about the annotation that contains all lists, or about one of its fields.
func (d *decider) wholeFault(format string, args ...any) {
	d.fault(d.mesh.whole, d.pod.Annotations[d.mesh.whole], "%v", fmt.Errorf(format, args...))
}

// wholeList parses a field that is a list. A wrong element or a too long list becomes a fault.
func wholeList[T any](d *decider, field string, list []string, parse parser[T]) []T {
	if len(list) > maxElements {
		d.wholeFault("%s: expected at most %d elements, got %d", field, maxElements, len(list))
		return nil
	}
	values, err := parseElements(slices.Values(list), func(text string) (T, error) { return parse(strings.TrimSpace(text)) })
	if err != nil {
		d.wholeFault("%s: %w", field, err)
	}
	return values
}

// wholePorts returns the sorted ports of a field that is a list of single ports, together with others.
func (d *decider) wholePorts(field string, list []string, others ...uint16) []uint16 {
	return unique(append(wholeList(d, field, list, config.ParsePort), others...)...)
}

// wholePort parses a field that is a port of the proxy. A wrong port, or 0, becomes a fault.
func (d *decider) wholePort(field, text string) uint16 {
	port, err := config.ParsePort(text)
	if err != nil || port == 0 {
		d.wholeFault("%s is %s: expected a port from 1 to 65535", field, config.Quoted(text))
	}
	return port
}

// readWholeProxy sets the proxy's uid from a field, because the rules of the mesh's own plugin
// recognize the proxy only by this uid. A wrong uid, or root's, becomes a fault.
func (d *decider) readWholeProxy(in *Intent, field, text string, meshUID uint32) {
	uid, err := parseUID(strings.TrimSpace(text))
	if err == nil && uid == 0 { // all of root's traffic would be exempt
		err = errors.New("expected a uid from 1 to 4294967295")
	}
	if err != nil {
		d.wholeFault("%s: %w", field, err)
	}
	d.proxy.UID = ID{Number: int64(uid)}
	in.ProxyUID = d.proxyID("uid", Container.uid, 0)
	d.checkUnknownIDs(in.ProxyUID != meshUID)
}

func parseUID(text string) (uint32, error) {
	uid, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		err = fmt.Errorf("%s: expected a numeric uid", config.Quoted(text))
	}
	return uint32(uid), err
}

// addressOrRange parses a range or a single address. It returns an address as the range that contains
// only this address.
func addressOrRange(text string) (netip.Prefix, error) {
	if address, err := netip.ParseAddr(text); err == nil {
		text += fmt.Sprint("/", address.BitLen())
	}
	return config.ParsePrefix(text)
}

// commaList is a YAML list, or text with commas, or a list of such texts.
type commaList []string

func (l *commaList) UnmarshalYAML(unmarshal func(any) error) error {
	var value any
	err := unmarshal(&value)
	list, isList := value.([]any)
	if !isList && value != "" {
		list = []any{value}
	}
	*l = nil
	for _, element := range list {
		*l = append(*l, strings.Split(fmt.Sprint(element), ",")...)
	}
	return err
}
