// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
)

// fencedPod has an application that can neither send past the rules nor be the proxy.
func fencedPod(value string, changes ...func(*Pod)) Pod {
	return meshedPod(append([]func(*Pod){annotated(annotationFence, value), func(p *Pod) {
		p.Containers[0] = Container{Name: "app", UID: ID{Number: 1000}, GID: ID{Number: 1000}, NoNetRaw: true, NoNewPrivileges: true}
	}}, changes...)...)
}

func app(change func(*Container)) func(*Pod) { return func(p *Pod) { change(&p.Containers[0]) } }

func onlyIstio(s *config.Settings) { s.Meshes = []config.MeshName{config.Istio} }

func exclusions(s *config.Settings) { s.Mesh.ExcludeOutboundPorts = []uint16{3306} }

// TestFenceDecisions fails each pod that asks for a fence and could not have it.
func TestFenceDecisions(t *testing.T) {
	t.Parallel()
	allow := func(text string) func(*Pod) { return annotated(annotationFenceAllow, text) }
	limited := func(s *config.Settings) {
		s.FenceLimit = []config.Opening{{Protocol: "udp", First: 53, Last: 53, Range: netip.MustParsePrefix("10.0.0.0/8")}}
	}
	for name, test := range map[string]struct {
		pod      Pod
		settings func(*config.Settings)
		want     string // part of the error; "" for none
		open     bool   // there is no fence
	}{
		"a fence":                        {pod: fencedPod("true")},
		"none":                           {pod: fencedPod("false"), open: true},
		"an unknown value":               {pod: fencedPod("yes"), want: "expected true, strict or false"},
		"an exception":                   {pod: fencedPod("true", allow("out:udp:53@10.96.0.10/32, in:tcp:80-90@2001:db8::/32"))},
		"a bad exception":                {pod: fencedPod("true", allow("out:53@10.96.0.10/32")), want: "expected DIRECTION:PROTOCOL:PORTS@RANGE"},
		"a bad exception, with a limit":  {pod: fencedPod("true", allow("out:53@10.96.0.10/32")), settings: limited, want: "expected DIRECTION:PROTOCOL:PORTS@RANGE"},
		"an exception alone":             {pod: meshedPod(allow("out:udp:53@10.96.0.10/32")), want: "it has no effect without " + annotationFence},
		"a permitted exception":          {pod: fencedPod("true", allow("out:udp:53@10.96.0.10/32")), settings: limited},
		"another direction":              {pod: fencedPod("true", allow("in:udp:53@10.96.0.10/32")), settings: limited, want: "within netconf.fenceLimit"},
		"another protocol":               {pod: fencedPod("true", allow("out:tcp:53@10.96.0.10/32")), settings: limited, want: "within netconf.fenceLimit"},
		"more ports":                     {pod: fencedPod("true", allow("out:udp:53-54@10.96.0.10/32")), settings: limited, want: "within netconf.fenceLimit"},
		"a wider range":                  {pod: fencedPod("true", allow("out:udp:53@10.0.0.0/7")), settings: limited, want: "within netconf.fenceLimit"},
		"no exception is permitted":      {pod: fencedPod("true", allow("out:udp:53@10.96.0.10/32")), settings: func(s *config.Settings) { s.FenceLimit = []config.Opening{} }, want: "within netconf.fenceLimit"},
		"many that are not permitted":    {pod: fencedPod("true", allow(listed(300, exception))), settings: limited, want: "295 more elements are faulty"},
		"a misspelt key":                 {pod: fencedPod("true", annotated(annotationOwn+"fense", "strict")), settings: onlyIstio, want: "there is no such key: expected " + annotationFence},
		"a longer key":                   {pod: fencedPod("true", annotated(annotationFence+"-allows-all", "")), settings: onlyIstio, want: "there is no such key: expected " + annotationFence},
		"a misspelt key alone":           {pod: meshedPod(annotated(annotationOwn+"fense", "true")), settings: onlyIstio, want: "there is no such key: expected " + annotationFence},
		"NET_RAW":                        {pod: fencedPod("true", app(func(c *Container) { c.NoNetRaw = false })), want: "container app may have the capability NET_RAW or NET_ADMIN"},
		"NET_ADMIN":                      {pod: fencedPod("true", app(func(c *Container) { c.NetAdmin = true })), want: "container app may have the capability NET_RAW or NET_ADMIN"},
		"an init container with NET_RAW": {pod: fencedPod("true", withInit("first")), want: "container first may have the capability NET_RAW or NET_ADMIN"},
		"a set-ID program":               {pod: fencedPod("true", app(func(c *Container) { c.NoNewPrivileges = false })), want: "container app may get the proxy's uid or gid by a set-ID program"},
		"the image's gid":                {pod: fencedPod("true", app(func(c *Container) { c.GID.Number = 0 })), want: "container app may have the gid of the proxy"},
		"the image's gid, a proxy's uid": {pod: fencedPod("true", func(p *Pod) {
			p.Containers[0].GID.Number, p.container(containerProxy).UID.Number = 0, 1337
		})},
		"the mesh's validation":            {pod: fencedPod("true", withInit(containerValidation, func(c *Container) { c.NoNetRaw, c.UID.Number = true, 1337 }))},
		"root":                             {pod: fencedPod("true", app(func(c *Container) { c.UID.Number = 0 })), want: "container app sets no uid, or root's"},
		"the proxy's user":                 {pod: fencedPod("true", app(func(c *Container) { c.UID.Number = 1337 })), want: "container app runs with the proxy's uid 1337"},
		"the proxy's group":                {pod: fencedPod("true", app(func(c *Container) { c.GID.Number = 1337 })), want: "container app runs with the proxy's gid 1337"},
		"strict":                           {pod: fencedPod("strict")},
		"strict, the injector's ports":     {pod: fencedPod("strict", annotated(annotationExcludeInboundPorts, "15021"), annotated(annotationExcludeOutboundPorts, "15020"))},
		"strict, an excluded port":         {pod: fencedPod("strict", annotated(annotationExcludeInboundPorts, "80")), want: "strict, and inbound ports are excluded"},
		"strict, excluded ranges":          {pod: fencedPod("strict", annotated(annotationExcludeOutboundRanges, "10.0.0.0/8")), want: "outbound ranges are excluded"},
		"strict, an excluded interface":    {pod: fencedPod("strict", annotated(annotationExcludeInterfaces, "net1")), want: "interfaces are excluded"},
		"strict, the operator's exclusion": {pod: fencedPod("strict"), settings: exclusions, want: "outbound ports are excluded"},
		"the operator's exclusion":         {pod: fencedPod("true"), settings: exclusions},
		"strict, groups":                   {pod: fencedPod("strict"), settings: func(s *config.Settings) { s.Mesh.OutboundOwnerGroupsExclude = []uint32{5} }, want: "groups are excluded"},
		"no mesh":                          {pod: fencedPod("true", func(p *Pod) { delete(p.Annotations, annotationStatus) }), want: "needs a mesh that captures the pod"},
		"another mesh":                     {pod: fencedPod("true"), settings: func(s *config.Settings) { s.Meshes = []config.MeshName{config.Linkerd} }, want: "needs a mesh that captures the pod"},
		"no proxy":                         {pod: fencedPod("true", withoutProxy), want: "no container istio-proxy"},
		"mode NONE":                        {pod: fencedPod("strict", annotated(annotationInterceptionMode, modeNone)), want: "is NONE"},
		"the init container captures":      {pod: fencedPod("true", withInit(containerInit, func(c *Container) { c.NetAdmin = true })), want: "sets up the capture itself"},
	} {
		settings := config.DefaultSettings()
		if test.settings != nil {
			test.settings(&settings)
		}
		decision, err := Decide(test.pod, settings)
		switch {
		case test.want == "" && (err != nil || (decision.Intent.Fence == nil) != test.open):
			t.Errorf("%s: fence %v, %v", name, decision.Intent.Fence, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || decision.Exemption.Cause != ""):
			t.Errorf("%s: got %v, %v, want %q", name, decision.Exemption, err, test.want)
		}
	}
}

// TestFencedIsMeshed has the plugin look a pod up that asks for a fence, whatever its mesh is.
func TestFencedIsMeshed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		annotations map[string]string
		want        bool
	}{
		{map[string]string{annotationFence: "true"}, true},
		{map[string]string{annotationFence: "?"}, true},
		{map[string]string{annotationFenceAllow: ""}, true},
		{map[string]string{annotationFence: "false", annotationFenceAllow: ""}, false},
		{map[string]string{annotationFence: "false"}, false},
		{nil, false},
	} {
		names := []config.MeshName{config.Istio, config.OwnKeys}
		if Meshed(test.annotations, names) != test.want || MarkedByAuthor(test.annotations, names) != test.want ||
			MarkedBy(config.OwnKeys, test.annotations) {
			t.Errorf("%v: meshed %v, want %v, and of no mesh", test.annotations, !test.want, test.want)
		}
	}
}

// TestOutside expects the addresses of a range without those of others, and disjoint parts.
func TestOutside(t *testing.T) {
	t.Parallel()
	for text, test := range map[string]struct {
		closed string
		want   string
	}{
		"10.0.0.0/30":        {"10.0.0.1/32", "10.0.0.0/32 10.0.0.2/31"},
		"10.0.0.0/31":        {"10.0.0.0/32 10.0.0.1/32", ""},
		"192.168.0.0/16":     {"10.0.0.1/32 fe80::/10", "192.168.0.0/16"},
		"0.0.0.0/0":          {"128.0.0.0/2 0.0.0.0/1", "192.0.0.0/2"},
		"2001:db8::/126":     {"2001:db8::2/127", "2001:db8::/127"},
		"169.254.169.254/32": {"", "169.254.169.254/32"},
	} {
		var closed, got []string
		closed = strings.Fields(test.closed)
		var ranges []netip.Prefix
		for _, c := range closed {
			ranges = append(ranges, netip.MustParsePrefix(c))
		}
		for _, r := range outside(netip.MustParsePrefix(text), ranges) {
			got = append(got, r.String())
		}
		if !slices.Equal(got, strings.Fields(test.want)) {
			t.Errorf("%s without %s: got %v, want %s", text, test.closed, got, test.want)
		}
	}
}

// TestClosedAddresses opens link-local and the node's addresses only to an exception that is
// no wider.
func TestClosedAddresses(t *testing.T) {
	t.Parallel()
	const node = "192.0.2.7"
	for text, want := range map[string]map[string]bool{
		"0.0.0.0/0":          {"169.254.169.254": false, node: false, "192.0.2.6": false, "10.0.0.1": true},
		"192.0.2.0/24":       {node: false, "192.0.2.8": true},
		"192.0.2.7/32":       {node: true},
		"192.0.2.6/31":       {node: false, "192.0.2.6": false},
		"169.254.169.254/32": {"169.254.169.254": true},
		"169.254.0.0/16":     {"169.254.169.254": true},
		"168.0.0.0/7":        {"169.254.169.254": false, "168.1.1.1": true},
		"fe00::/7":           {"fe80::1": false, "ff02::1": true},
	} {
		pod := fencedPod("true", annotated(annotationFenceAllow, "out:udp:53@"+text))
		decision, err := Decide(pod, config.DefaultSettings())
		if err == nil {
			decision, err = decision.At([]netip.Addr{netip.MustParseAddr("10.9.9.9")}, []netip.Addr{netip.MustParseAddr("::ffff:" + node), netip.MustParseAddr("192.0.2.6"), netip.MustParseAddr("fe80::5%eth0")})
		}
		if err != nil {
			t.Fatal(err)
		}
		for address, open := range want {
			ranges := decision.Intent.Fence.Openings[0].Ranges
			got := slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(netip.MustParseAddr(address)) })
			if got != open {
				t.Errorf("%s: %s is open: %v, in %v", text, address, got, ranges)
			}
		}
		for _, r := range decision.Rules.Chain(Filter, chainFenceOut).Rules {
			if r.Match.Protocol == UDP && r.Match.Dst.IsZero() {
				t.Errorf("%s: %+v opens every address", text, r)
			}
		}
	}
}

// FuzzFence expects loadable rules, or an error, of each fence.
func FuzzFence(f *testing.F) {
	f.Add("true", "out:udp:53@10.96.0.10/32,in:tcp:1-65535@::/0", "10.0.0.0/8")
	f.Add("strict", "in:udp:0@0.0.0.0/0", "")
	f.Add("", "out::@", "*")
	f.Fuzz(func(t *testing.T, value, allow, ranges string) {
		pod := fencedPod(value, annotated(annotationFenceAllow, allow), annotated(annotationIncludeOutboundRanges, ranges))
		decision, err := decideAt(pod, config.DefaultSettings(), dualStack)
		_, bad := errors.AsType[BadInput](err)
		if _, refused := errors.AsType[Refusal](err); err != nil && !bad && !refused {
			t.Fatalf("an error of type %T: %v", err, err)
		}
		if err == nil {
			expectLoadable(t, decision.Rules)
			if (decision.Intent.Fence == nil) != (value == "false") {
				t.Errorf("fence %q: %v", value, decision.Intent.Fence)
			}
		}
	})
}
