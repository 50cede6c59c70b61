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

var (
	only4     = []netip.Addr{netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("fe80::1"), netip.MustParseAddr("127.0.0.1")}
	only6     = []netip.Addr{netip.MustParseAddr("2001:db8::3"), netip.MustParseAddr("fe80::1"), netip.MustParseAddr("::1")}
	dualStack = append(slices.Clone(only4), only6...)
)

// decide runs Decide with known addresses. An exemption is an error.
func decide(pod Pod, settings config.Settings, addresses []netip.Addr) (Intent, []string, error) {
	decision, err := decideAt(pod, settings, addresses)
	if err == nil && decision.Exemption.Cause != "" {
		err = errors.New("exempt: " + decision.Exemption.Message)
	}
	return decision.Intent, decision.Warnings, err
}

func decideAt(pod Pod, settings config.Settings, addresses []netip.Addr) (Decision, error) {
	decision, err := Decide(pod, settings)
	if err != nil {
		return decision, err
	}
	return decision.At(addresses, nil)
}

func intentOf(t *testing.T, settings config.Settings, addresses []netip.Addr, changes ...func(*Pod)) Intent {
	t.Helper()
	intent, _, err := decide(meshedPod(changes...), settings, addresses)
	if err != nil {
		t.Fatal(err)
	}
	return intent
}

func TestPorts(t *testing.T) {
	t.Parallel()
	settings := config.DefaultSettings()
	settings.Mesh.ExcludeInboundPorts, settings.Mesh.ExcludeOutboundPorts = []uint16{9}, []uint16{7}
	absent := intentOf(t, settings, only4)
	if want := Ports(9, 15020, 15021, 15090); !slices.Equal(absent.ExcludeInboundPorts, want) {
		t.Errorf("inbound, absent: %v", absent.ExcludeInboundPorts)
	}
	if want := Ports(7, 15020); !slices.Equal(absent.ExcludeOutboundPorts, want) {
		t.Errorf("outbound, absent: %v", absent.ExcludeOutboundPorts)
	}
	if !absent.InboundPorts.All || !absent.OutboundRanges.All {
		t.Error("absent includes do not select everything")
	}
	set := intentOf(t, settings, only4,
		annotated(annotationExcludeInboundPorts, "8, 8,9"), annotated(annotationExcludeOutboundPorts, ""),
		annotated(annotationIncludeInboundPorts, ""), annotated(annotationIncludeOutboundRanges, ""))
	if want := Ports(8, 9, 15020, 15021, 15090); !slices.Equal(set.ExcludeInboundPorts, want) {
		t.Errorf("inbound, set: %v", set.ExcludeInboundPorts)
	}
	if want := Ports(7); !slices.Equal(set.ExcludeOutboundPorts, want) {
		t.Errorf("outbound, empty: %v", set.ExcludeOutboundPorts)
	}
	if set.InboundPorts.All || set.OutboundRanges.All || len(set.InboundPorts.Only)+len(set.OutboundRanges.Only) > 0 {
		t.Error("empty includes select something")
	}
}

func TestFamilies(t *testing.T) {
	t.Parallel()
	const left = "IPv6 is left uncaptured: the pod has an IPv6 address"
	for _, test := range []struct {
		policy    config.IPv6Policy
		addresses []netip.Addr
		dual      string
		ipv6      Treatment
		note      string
		refused   string
	}{
		{policy: config.IPv6Mesh, addresses: only4, ipv6: Refused},
		{policy: config.IPv6Mesh, addresses: only6, ipv6: Captured},
		{policy: config.IPv6Mesh, addresses: dualStack, note: left + `, ISTIO_DUAL_STACK is not true and "ipv6" is "mesh"`},
		{policy: config.IPv6Mesh, addresses: dualStack, dual: "true", ipv6: Captured},
		{policy: config.IPv6Mesh, addresses: only4, dual: "true", ipv6: Captured},
		{policy: config.IPv6Never, addresses: only4, dual: "true", ipv6: Refused},
		{policy: config.IPv6Always, addresses: only4, ipv6: Refused},
		{policy: config.IPv6Always, addresses: only4, dual: "true", ipv6: Captured},
		{policy: config.IPv6Always, addresses: dualStack, ipv6: Captured},
		{policy: config.IPv6Never, addresses: only4, ipv6: Refused},
		{policy: config.IPv6Never, addresses: dualStack, dual: "true", note: left + ` and "ipv6" is "never"`},
		{policy: config.IPv6Never, addresses: dualStack, note: left + ` and "ipv6" is "never"`},
		{policy: config.IPv6Never, addresses: only6, refused: "IPv6 addresses only"},
		{policy: config.IPv6Always, addresses: nil, refused: "no usable address"},
		{policy: config.IPv6Mesh, addresses: []netip.Addr{netip.MustParseAddr("169.254.1.1"), netip.MustParseAddr("fe80::1"), netip.MustParseAddr("::1")}, refused: "no usable address"},
		{policy: config.IPv6Mesh, addresses: []netip.Addr{netip.MustParseAddr("::ffff:10.1.2.3")}, ipv6: Refused},
	} {
		settings := config.DefaultSettings()
		settings.IPv6 = test.policy
		decision, err := decideAt(meshedPod(withEnv(envDualStack, test.dual)), settings, test.addresses)
		expect(t, string(test.policy), err, test.refused)
		if err != nil {
			if _, ok := errors.AsType[Refusal](err); !ok {
				t.Errorf("%+v: %v is not a Refusal", test, err)
			}
			continue
		}
		if note := strings.Join(decision.Notes, "\n"); decision.Intent.IPv6 != test.ipv6 || note != test.note {
			t.Errorf("%+v: IPv6 is %q, note %q", test, decision.Intent.IPv6, note)
		}
	}
}

func TestProxyIdentity(t *testing.T) {
	t.Parallel()
	onPod := func(uid, gid int64) func(*Pod) {
		return func(p *Pod) {
			for i := range p.Containers {
				p.Containers[i].UID, p.Containers[i].GID = ID{Number: uid, FromPod: true}, ID{Number: gid, FromPod: true}
			}
		}
	}
	on := func(container string, changes ...func(*Container)) func(*Pod) {
		return func(p *Pod) {
			for _, change := range changes {
				change(p.container(container))
			}
		}
	}
	for _, test := range []struct {
		name     string
		changes  []func(*Pod)
		policy   config.SharedUIDPolicy
		uid, gid uint32
		refused  string
		warned   bool
	}{
		{name: "default", uid: 1337, gid: 1337},
		{name: "container", changes: []func(*Pod){on(containerProxy, runsAs(5, 6)), on("app", runsAs(9, 0))}, uid: 5, gid: 6},
		{name: "container over pod", changes: []func(*Pod){onPod(7, 8), on(containerProxy, runsAs(5, 6))}, uid: 5, gid: 6},
		{name: "pod", changes: []func(*Pod){onPod(7, 8), on("app", runsAs(9, 9))}, uid: 7, gid: 8},
		{name: "root", changes: []func(*Pod){on(containerProxy, runsAs(0, 0))}, uid: 1337, gid: 1337},
		{name: "large", changes: []func(*Pod){on(containerProxy, runsAs(4294967294, 2147483648)), on("app", runsAs(9, 9))}, uid: 4294967294, gid: 2147483648},
		{name: "shared through the pod", changes: []func(*Pod){onPod(7, 8)}, refused: "container app runs with the proxy's uid 7"},
		{name: "gid shared through the pod", changes: []func(*Pod){onPod(7, 8), on(containerProxy, runsAs(5, 8)), on("app", func(c *Container) { c.UID = ID{Number: 9} })}, refused: "proxy's gid 8"},
		{name: "inherited by the application alone", changes: []func(*Pod){onPod(1337, 8), on(containerProxy, runsAs(1337, 9))}, refused: "proxy's uid 1337"},
		{name: "inherited by the proxy alone", changes: []func(*Pod){onPod(7, 8), on("app", runsAs(7, 9))}, refused: "proxy's uid 7"},
		{name: "a gid inherited by the proxy alone", changes: []func(*Pod){onPod(7, 8), on("app", runsAs(9, 8))}, refused: "proxy's gid 8"},
		{name: "root of the pod, and an application by choice", changes: []func(*Pod){onPod(0, 0), on("app", runsAs(1337, 1))}, uid: 1337, gid: 1337, warned: true},
		{name: "gid shared by choice", changes: []func(*Pod){on("app", runsAs(1, 1337))}, uid: 1337, gid: 1337, warned: true},
		{name: "shared by choice", changes: []func(*Pod){on("app", runsAs(1337, 1))}, uid: 1337, gid: 1337, warned: true},
		{name: "shared by choice, refused", policy: config.SharedUIDRefuse, changes: []func(*Pod){on("app", runsAs(1337, 1))}, refused: "would escape capture"},
		{name: "an init container shares", policy: config.SharedUIDRefuse, changes: []func(*Pod){withInit("setup", runsAs(1337, 0))}, refused: "container setup"},
		{name: "validation may share", policy: config.SharedUIDRefuse, changes: []func(*Pod){withInit(containerValidation, runsAs(1337, 0))}, uid: 1337, gid: 1337},
		{name: "validation among the containers", policy: config.SharedUIDRefuse, changes: []func(*Pod){on("app", runsAs(1337, 1), func(c *Container) { c.Name = containerValidation })}, refused: "container istio-validation"},
		{name: "validation that keeps running", policy: config.SharedUIDRefuse, changes: []func(*Pod){
			withInit(containerValidation, runsAs(1337, 0), keepsRunning),
		}, refused: "container istio-validation"},
		{name: "validation that keeps running, warned", changes: []func(*Pod){
			withInit(containerValidation, runsAs(1337, 0), keepsRunning),
		}, uid: 1337, gid: 1337, warned: true},
		{name: "native sidecar", changes: []func(*Pod){on(containerProxy, runsAs(5, 6)), on("app", runsAs(9, 9)), native}, uid: 5, gid: 6},
		{name: "the image decides", changes: []func(*Pod){on(containerProxy, runsAs(1000, 1337))}, uid: 1000, gid: 1337, warned: true},
		{name: "the image decides, refused", policy: config.SharedUIDRefuse, changes: []func(*Pod){on(containerProxy, runsAs(1000, 1337))}, refused: "container app sets no uid"},
		{name: "the image decides on the gid", changes: []func(*Pod){on(containerProxy, runsAs(1337, 1000))}, uid: 1337, gid: 1000, warned: true},
		{name: "root with a gid can take the proxy's", changes: []func(*Pod){on(containerProxy, runsAs(1337, 1000)), on("app", runsAs(0, 9))}, uid: 1337, gid: 1000, warned: true},
		{name: "root with a gid, refused", policy: config.SharedUIDRefuse, changes: []func(*Pod){on(containerProxy, runsAs(1337, 1000)), on("app", runsAs(0, 9))}, refused: "container app sets no uid, or root's"},
		{name: "a uid and a gid, and the proxy has its own gid", changes: []func(*Pod){on(containerProxy, runsAs(1337, 1000)), on("app", runsAs(9, 9))}, uid: 1337, gid: 1000},
		{name: "the image decides, and the proxy has the mesh's", policy: config.SharedUIDRefuse, changes: []func(*Pod){on(containerProxy, runsAs(1337, 1337))}, uid: 1337, gid: 1337},
		{name: "the image decides on a gid, as on OpenShift", policy: config.SharedUIDRefuse, changes: []func(*Pod){on(containerProxy, runsAs(1001, 1001)), on("app", runsAs(1000, 0))}, uid: 1001, gid: 1001},
		{name: "an init container ends before the proxy starts", policy: config.SharedUIDRefuse, changes: []func(*Pod){
			on(containerProxy, runsAs(1000, 1000)), on("app", runsAs(9, 9)), withInit(containerValidation), withInit(containerInit),
		}, uid: 1000, gid: 1000},
		{name: "an init container after the proxy", policy: config.SharedUIDRefuse, changes: []func(*Pod){
			on(containerProxy, runsAs(1000, 1000)), on("app", runsAs(9, 9)), native, withInit("setup"),
		}, refused: "container setup sets no uid"},
		{name: "a sidecar before the proxy", policy: config.SharedUIDRefuse, changes: []func(*Pod){
			on(containerProxy, runsAs(1000, 1000)), on("app", runsAs(9, 9)), withInit("logger", keepsRunning), native,
		}, refused: "container logger sets no uid"},
	} {
		settings := config.DefaultSettings()
		if test.policy != "" {
			settings.SharedProxyUID = test.policy
		}
		intent, warnings, err := decide(meshedPod(test.changes...), settings, only4)
		expect(t, test.name, err, test.refused)
		if err == nil && (intent.ProxyUID != test.uid || intent.ProxyGID != test.gid || (len(warnings) > 0) != test.warned) {
			t.Errorf("%s: got %d/%d, warnings %q", test.name, intent.ProxyUID, intent.ProxyGID, warnings)
		}
	}
}

// TestSharedGroups follows sharedProxyUID for containers whose processes can take the proxy's
// gid, one of the pod's groups.
func TestSharedGroups(t *testing.T) {
	t.Parallel()
	refused := func(containers ...string) (lines []string) {
		for _, name := range containers {
			lines = append(lines, "container "+name+" can take the proxy's gid 1337")
		}
		return lines
	}
	app := func(changes ...func(*Container)) func(*Pod) {
		return func(p *Pod) {
			for _, change := range changes {
				change(p.container("app"))
			}
		}
	}
	ownGID := func(p *Pod) { runsAs(1337, 6)(p.container(containerProxy)) }
	for name, test := range map[string]struct {
		changes []func(*Pod)
		want    []string // of each line: the beginning
	}{
		"a group of the pod":                {[]func(*Pod){withGroups(5, 1337)}, refused("app")},
		"too many groups":                   {[]func(*Pod){withGroups(AnyGroup)}, refused("app")},
		"the mesh's, of a proxy of another": {[]func(*Pod){ownGID, app(runsAs(9, 9)), withGroups(1337)}, nil},
		"a gid of the proxy's own": {
			[]func(*Pod){ownGID, app(runsAs(9, 9)), withGroups(6)}, []string{"container app can take the proxy's gid 6, which fsGroup"},
		},
		"no new privileges":     {[]func(*Pod){withGroups(1337), app(noNewPrivileges)}, nil},
		"one container of two":  {[]func(*Pod){withGroups(1337), app(noNewPrivileges), native, withInit("setup")}, refused("setup")},
		"istio-validation":      {[]func(*Pod){withGroups(1337), app(noNewPrivileges), withInit(containerValidation, runsAs(1337, 1))}, nil},
		"other groups":          {[]func(*Pod){withGroups(0, 5, 1000)}, nil},
		"the gid and the group": {[]func(*Pod){withGroups(1337), app(runsAs(9, 1337))}, []string{"container app runs with the proxy's gid 1337"}},
	} {
		begin := func(lines []string) bool {
			return slices.EqualFunc(lines, test.want, strings.HasPrefix)
		}
		settings := config.DefaultSettings()
		if _, warnings, err := decide(meshedPod(test.changes...), settings, only4); err != nil || !begin(warnings) {
			t.Errorf("%s: got %q, %v, want %q", name, warnings, err, test.want)
		}
		settings.SharedProxyUID = config.SharedUIDRefuse
		_, _, err := decide(meshedPod(test.changes...), settings, only4)
		refusal, isRefusal := errors.AsType[Refusal](err)
		if isRefusal != (len(test.want) > 0) || isRefusal && !begin(strings.Split(string(refusal), "\n")) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	settings := config.DefaultSettings()
	settings.SandboxedRuntimeClasses = []string{"kata", "gvisor"}
	for want, change := range map[string]func(*Pod){
		`runtime class "kata"`: withClass("kata"),
		"":                     withClass("runc"),
	} {
		_, _, err := decide(meshedPod(change), settings, only4)
		expect(t, want, err, want)
		if _, ok := errors.AsType[Refusal](err); ok != (want != "") {
			t.Errorf("%q: %v", want, err)
		}
	}
}

func TestAllFaultsAreReported(t *testing.T) {
	t.Parallel()
	bad := map[string]string{
		annotationInterceptionMode: "redirect", annotationIncludeInboundPorts: "80,*", annotationExcludeInboundPorts: "*",
		annotationIncludeOutboundPorts: "0120", annotationExcludeOutboundPorts: "80,,81", annotationIncludeOutboundRanges: "10.0.0.1",
		annotationExcludeOutboundRanges: "*", annotationExcludeInterfaces: "eth+", annotationRerouteInterfaces: "1eth",
	}
	pod := meshedPod()
	for key, value := range bad {
		pod.Annotations[key] = value
	}
	_, _, err := decide(pod, config.DefaultSettings(), nil)
	faults, ok := errors.AsType[BadInput](err)
	if !ok || len(faults) != len(bad) {
		t.Fatalf("got %d faults, want %d: %v", len(faults), len(bad), err)
	}
	for key, value := range bad {
		if !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), value) {
			t.Errorf("%s: %q is missing in: %v", key, value, err)
		}
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	_, warnings, err := decide(meshedPod(
		annotated(annotationTraffic+"excludeInboundPort", "80"), annotated("example.com/other", "x"),
		annotated(annotationKubevirtInterfaces, "eth1"), withEnv(envDropInvalid, "on")), config.DefaultSettings(), only4)
	if err != nil || len(warnings) != 2 {
		t.Fatalf("got %q, %v", warnings, err)
	}
	expect(t, "", errors.New(strings.Join(warnings, "\n")), `INVALID_DROP of container istio-proxy is "on"`)
	expect(t, "", errors.New(strings.Join(warnings, "\n")), "excludeInboundPort is not known")
}
