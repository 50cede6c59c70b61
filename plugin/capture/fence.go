// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/config"
)

const (
	annotationFence      = annotationOwn + "fence"
	annotationFenceAllow = annotationOwn + "fence-allow"
)

// fenceAnnotations returns the annotations of a fence, which have the same meaning in every mesh, and
// put no pod into a mesh.
func fenceAnnotations() []Annotation {
	return []Annotation{
		{
			annotationFence, "`true`, `strict`, `false`", "`false`",
			"refuses packets that would bypass the proxy, except excluded TCP; `strict`: exclusions fail the pod",
		},
		{annotationFenceAllow, "`DIRECTION:PROTOCOL:PORTS@CIDR`", "empty", "exceptions from the fence, comma-separated"},
	}
}

func isFenceKey(key string) bool { return key == annotationFence || key == annotationFenceAllow }

// Fence refuses a pod's packets except captured packets, the proxy's packets, packets on loopback between
// the pod's own addresses, TCP packets that an exclusion exempts, packets that an Opening permits, answers
// to these packets, and the ICMP packets that every network needs.
type Fence struct {
	Openings []Opening
	ProxyGID uint32 `json:",omitzero"` // the proxy's gid if the proxy may run as root; otherwise its uid identifies it
}

// Opening is one exception from the fence, for ranges of one IP family.
type Opening struct {
	config.Opening
	Ranges []netip.Prefix // the parts of Range that are open; see At
}

// Fenced reports whether annotations request a fence, even if their values are invalid. An exception
// without the annotation of the fence also requests one.
func Fenced(annotations map[string]string) bool {
	value, fenced := annotations[annotationFence]
	_, allows := annotations[annotationFenceAllow]
	return fenced && value != "false" || allows && !fenced
}

// readFence reads the annotations of a fence, which the pods of any mesh can have. Unknown and wrong
// ones become faults.
func (d *decider) readFence(in *Intent) {
	for _, key := range slices.Sorted(maps.Keys(d.pod.Annotations)) {
		if isFenceKey(key) || d.mesh.decides(key) {
			continue
		}
		if meant := d.mesh.misspelt(key); isFenceKey(meant) || strings.HasPrefix(key, annotationFence) {
			d.keyFault(key, "there is no such key: expected "+cmp.Or(meant, annotationFence))
		}
	}
	value, fenced := d.pod.Annotations[annotationFence]
	switch {
	case !Fenced(d.pod.Annotations):
		return
	case !fenced:
		d.keyFault(annotationFenceAllow, "it has no effect without "+annotationFence+": expected both")
	case value != "true" && value != "strict":
		d.fault(annotationFence, value, "expected true, strict or false")
	}
	in.Fence = &Fence{Openings: listOf(d, annotationFenceAllow, "", d.parseOpening)}
	if len(in.Fence.Openings) > maxOpenings {
		d.fault(annotationFenceAllow, d.pod.Annotations[annotationFenceAllow], "expected at most %d exceptions, got %d",
			maxOpenings, len(in.Fence.Openings))
	}
	if d.proxy.UID.Number == 0 {
		in.Fence.ProxyGID = in.ProxyGID
	}
	d.checkFencedContainers(in.Fence.ProxyGID)
	for _, t := range in.Translations {
		if !t.To.Addr().IsLoopback() {
			d.refuse("%s: the mesh sends DNS queries to %s, outside the pod and past the proxy: use a resolver on localhost, or no fence",
				annotationFence, t.To.Addr())
		}
	}
	if value == "strict" {
		d.checkNoExclusions(*in)
	}
}

// parseOpening parses an exception, and returns an error if the operator does not permit it.
func (d *decider) parseOpening(text string) (Opening, error) {
	o, err := config.ParseOpening(text)
	if err == nil && !config.Permits(d.settings.FenceLimit, o) {
		err = fmt.Errorf("%s: the operator does not permit it: expected an exception within netconf.fenceLimit", o)
	}
	return Opening{Opening: o}, err
}

// checkFencedContainers refuses the pod if a container other than the proxy may send past the fence.
// NET_RAW permits AF_PACKET sockets, which bypass netfilter, and, since Linux 5.17, setting the marks that
// the rules trust. NET_ADMIN permits changing the rules. A set-ID program of an image or volume can have the
// proxy's uid or gid, and so can a process without a gid in its security context, because the runtime takes
// the gid from the image. proxyGID is the gid that identifies the proxy, or 0.
func (d *decider) checkFencedContainers(proxyGID uint32) {
	var lines []string
	for _, c := range d.pod.Containers {
		may, mend := "", ""
		switch {
		case c.Name == d.proxy.Name:
		case c.NetAdmin || !c.NoNetRaw:
			may, mend = "have the capability NET_RAW or NET_ADMIN", "drop ALL capabilities, add neither of these, and do not set privileged"
		case d.isValidation(c):
		case !c.NoNewPrivileges:
			may, mend = "get the proxy's uid or gid by a set-ID program", "set allowPrivilegeEscalation to false"
		case proxyGID != 0 && c.GID.Number == 0:
			may, mend = "have the gid of the proxy, which may run as root,", "set runAsGroup to another gid than root's and the proxy's"
		}
		if may != "" {
			lines = append(lines, fmt.Sprintf("container %s may %s and send past the fence: in its security context, %s", c.Name, may, mend))
		}
	}
	d.refusals = append(d.refusals, config.Few(lines, "containers may send past the fence")...)
}

// checkNoExclusions refuses the pod if the pod or the operator excludes traffic. It permits the mesh's
// own exclusions, such as the proxy's ports, which it finds by reading the pod with default settings and
// without the annotations that exclude traffic.
func (d *decider) checkNoExclusions(in Intent) {
	bare := decider{mesh: d.mesh, pod: d.pod, proxy: d.proxy, settings: config.DefaultSettings()}
	bare.pod.Annotations = maps.Clone(d.pod.Annotations)
	for _, key := range append([]string{d.mesh.excluding}, d.mesh.exclusions...) {
		delete(bare.pod.Annotations, key)
	}
	own := d.mesh.read(&bare)
	var found []string
	for _, excludable := range []struct {
		what     string
		excluded bool
	}{
		{"inbound ports", without(in.ExcludeInboundPorts, own.ExcludeInboundPorts)},
		{"clients' ranges", without(in.ExcludeInboundRanges, own.ExcludeInboundRanges)},
		{"outbound ports", without(in.ExcludeOutboundPorts, own.ExcludeOutboundPorts)},
		{"outbound ranges", without(in.ExcludeOutboundRanges, own.ExcludeOutboundRanges)},
		{"users, ports or destinations", len(in.Exempt) > 0},
		{"interfaces", len(in.ExcludeInterfaces) > 0},
		{"groups", len(in.OwnerGroups) > 0 || len(in.ExcludeOwnerGroups) > 0},
	} {
		if excludable.excluded {
			found = append(found, excludable.what)
		}
	}
	if len(found) > 0 {
		d.refuse("%s is strict, and %s are excluded from capture, by the pod's annotations or labels, or by netconf.mesh: "+
			"remove the exclusions, or set true", annotationFence, strings.Join(found, ", "))
	}
}

// without reports whether a list contains a value that the other list lacks.
func without[T comparable](list, other []T) bool {
	return slices.ContainsFunc(list, func(value T) bool { return !slices.Contains(other, value) })
}

// linkLocal contains the link-local ranges, where cloud providers serve credentials. An Opening opens a
// part of such a range only if the Opening is within the range.
var linkLocal = []netip.Prefix{netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fe80::/10")}

// close returns the fence with the Ranges of its openings. It removes each link-local range, and each
// address of the node, from those openings that are wider than this range or address.
func (f *Fence) close(node []netip.Addr) *Fence {
	if f == nil {
		return nil
	}
	closed := slices.Clone(linkLocal)
	for _, a := range node {
		a = a.Unmap().WithZone("")
		closed = append(closed, netip.PrefixFrom(a, a.BitLen()))
	}
	at := &Fence{ProxyGID: f.ProxyGID}
	for _, o := range f.Openings {
		o.Ranges = outside(o.Range, slices.DeleteFunc(slices.Clone(closed), func(c netip.Prefix) bool {
			return c.Bits() <= o.Range.Bits() // o is not wider than c
		}))
		at.Openings = append(at.Openings, o)
	}
	return at
}

// outside returns the parts of a range that no closed range contains.
func outside(r netip.Prefix, closed []netip.Prefix) []netip.Prefix {
	within := slices.DeleteFunc(slices.Clone(closed), func(c netip.Prefix) bool { return !r.Overlaps(c) })
	switch {
	case len(within) == 0:
		return []netip.Prefix{r}
	case slices.ContainsFunc(within, func(c netip.Prefix) bool { return c.Bits() <= r.Bits() }):
		return nil
	}
	upper := r.Addr().AsSlice()
	upper[r.Bits()/8] |= 0x80 >> (r.Bits() % 8)
	other, _ := netip.AddrFromSlice(upper)
	return append(outside(netip.PrefixFrom(r.Addr(), r.Bits()+1), within), outside(netip.PrefixFrom(other, r.Bits()+1), within)...)
}
