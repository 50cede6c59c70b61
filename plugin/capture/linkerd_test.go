// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
)

// linkerdPod returns a pod as Linkerd's injector makes it.
func linkerdPod(changes ...func(*Pod)) Pod {
	pod := Pod{
		Annotations: map[string]string{annotationLinkerdVersion: "edge-26.8.1"},
		Containers:  []Container{{Name: "app"}, {Name: containerLinkerdProxy, UID: ID{Number: linkerdUID}, Env: map[string]string{}}},
	}
	for _, change := range changes {
		change(&pod)
	}
	return pod.With(nil, pod.Annotations)
}

func linkerdEnv(name, value string) func(*Pod) {
	return func(p *Pod) { p.container(containerLinkerdProxy).Env[name] = value }
}

func withLinkerd() config.Settings {
	settings := config.DefaultSettings()
	settings.Meshes = config.Meshes()
	settings.Mesh.ExcludeInboundPorts, settings.Mesh.ExcludeOutboundPorts = []uint16{9}, []uint16{7}
	return settings
}

// TestSkippedPorts reads lists of ports as linkerd-cni does.
func TestSkippedPorts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		inbound, outbound string
		wantIn, wantOut   string
		warnings          int
		refused           string
		controlPlane      bool
	}{
		{wantIn: "[9 4190 4191]", wantOut: "[7]"},
		{inbound: "80", outbound: "443", wantIn: "[9 80 4190 4191]", wantOut: "[443]"},
		{inbound: "0-65535", outbound: "4000-5000,4500-6000,6000", wantIn: "[0-65535]", wantOut: "[4000-6000]"},
		{inbound: "80, 81", outbound: "443,x,5-4,0120,", wantIn: "[9 80 4190 4191]", wantOut: "[443]", warnings: 5},
		{inbound: " 80", refused: "skip-inbound-ports: \" 80\": no element is a port"},
		{outbound: "http,https", refused: "skip-outbound-ports: \"http,https\": no element is a port"},
		{outbound: strings.Repeat("1,", maxElements), refused: "at most"},
		{controlPlane: true, wantIn: "[9 4190 4191]", wantOut: "[7 443 6443]"},
		{controlPlane: true, outbound: "25", wantIn: "[9 4190 4191]", wantOut: "[25 443 6443]"},
	} {
		pod := linkerdPod(annotated(annotationSkipInbound, test.inbound), annotated(annotationSkipOutbound, test.outbound))
		if test.controlPlane {
			pod = pod.With(map[string]string{labelLinkerdControlPlane: "destination"}, pod.Annotations)
		}
		intent, warnings, err := decide(pod, withLinkerd(), only4)
		expect(t, test.inbound+";"+test.outbound, err, test.refused)
		if err != nil {
			continue
		}
		if in, out := fmt.Sprint(intent.ExcludeInboundPorts), fmt.Sprint(intent.ExcludeOutboundPorts); in != test.wantIn || out != test.wantOut || len(warnings) != test.warnings {
			t.Errorf("%q, %q: got %s and %s, %d warnings %q", test.inbound, test.outbound, in, out, len(warnings), warnings)
		}
	}
}

// TestLinkerdListens takes ports and families from the addresses on which the proxy listens.
func TestLinkerdListens(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		env      map[string]string
		in, out  uint16
		ipv6     Treatment
		warnings int
	}{
		{nil, 4143, 4140, Ignored, 0},
		{map[string]string{envLinkerdInbound: "0.0.0.0:1", envLinkerdOutbound: "127.0.0.1:2", envLinkerdOutboundOld: "127.0.0.1:3"}, 1, 2, Ignored, 0},
		{map[string]string{envLinkerdInbound: "[::]:1", envLinkerdOutbound: "127.0.0.1:2,[::1]:2"}, 1, 2, Captured, 0},
		{map[string]string{envLinkerdOutboundOld: "127.0.0.1:3"}, 4143, 3, Ignored, 0},
		{map[string]string{envLinkerdInbound: "", envLinkerdOutbound: "localhost:1"}, 4143, 4140, Ignored, 2},
		{map[string]string{envLinkerdInbound: "0.0.0.0:0"}, 4143, 4140, Ignored, 1},
	} {
		var changes []func(*Pod)
		for name, value := range test.env {
			changes = append(changes, linkerdEnv(name, value))
		}
		intent, warnings, err := decide(linkerdPod(changes...), withLinkerd(), dualStack)
		if err != nil || intent.InboundPort != test.in || intent.OutboundPort != test.out || intent.IPv6 != test.ipv6 || len(warnings) != test.warnings {
			t.Errorf("%v: got %d, %d, IPv6 %q, warnings %q, %v", test.env, intent.InboundPort, intent.OutboundPort, intent.IPv6, warnings, err)
		}
	}
	admin := linkerdPod(linkerdEnv(envLinkerdAdmin, "0.0.0.0:5191"), linkerdEnv(envLinkerdControl, "0.0.0.0:5190"))
	if intent, _, err := decide(admin, withLinkerd(), only4); err != nil || fmt.Sprint(intent.ExcludeInboundPorts) != "[9 5190 5191]" {
		t.Errorf("the proxy's own ports: %v, %v", intent.ExcludeInboundPorts, err)
	}
}

// TestLinkerdIdentity recognizes the proxy by its container's ids, or its annotations'.
func TestLinkerdIdentity(t *testing.T) {
	t.Parallel()
	on := func(change func(*Container)) func(*Pod) {
		return func(p *Pod) { change(p.container(containerLinkerdProxy)) }
	}
	sharedGID := func(p *Pod) {
		for i := range p.Containers {
			p.Containers[i].GID = ID{Number: 5, FromPod: true}
		}
	}
	appOf := func(uid, gid int64) func(*Pod) { return func(p *Pod) { runsAs(uid, gid)(p.container("app")) } }
	for name, test := range map[string]struct {
		changes  []func(*Pod)
		uid, gid uint32
		refused  string
	}{
		"default":                     {nil, 2102, 0, ""},
		"container":                   {[]func(*Pod){on(runsAs(5, 6)), appOf(1, 1), annotated(annotationLinkerdUID, "7"), annotated(annotationLinkerdGID, "8")}, 5, 6, ""},
		"annotations":                 {[]func(*Pod){on(runsAs(0, 0)), annotated(annotationLinkerdUID, "7"), annotated(annotationLinkerdGID, "8")}, 7, 8, ""},
		"root":                        {[]func(*Pod){on(runsAs(0, 0)), annotated(annotationLinkerdUID, "0"), annotated(annotationLinkerdGID, "")}, 2102, 0, ""},
		"not a number":                {[]func(*Pod){annotated(annotationLinkerdUID, "x")}, 0, 0, "proxy-uid: \"x\": expected a numeric id"},
		"no gid":                      {[]func(*Pod){annotated(annotationLinkerdGID, "-1")}, 2102, 0, ""},
		"a gid that the pod shares":   {[]func(*Pod){sharedGID}, 2102, 0, ""},
		"a gid that the app inherits": {[]func(*Pod){sharedGID, annotated(annotationLinkerdGID, "5")}, 0, 0, "container app runs with the proxy's gid 5"},
		"the uid, and the app has it": {[]func(*Pod){func(p *Pod) { p.container("app").UID = ID{Number: 2102, FromPod: true} }}, 0, 0, "container app runs with the proxy's uid 2102"},
	} {
		intent, _, err := decide(linkerdPod(test.changes...), withLinkerd(), only4)
		expect(t, name, err, test.refused)
		if err == nil && (intent.ProxyUID != test.uid || intent.ProxyGID != test.gid) {
			t.Errorf("%s: got %d/%d", name, intent.ProxyUID, intent.ProxyGID)
		}
	}
}

// TestLinkerdGroups warns of a group of the pod only if the proxy is recognized by it.
func TestLinkerdGroups(t *testing.T) {
	t.Parallel()
	for gid, want := range map[string]string{"": "[]", "5": "container app can take the proxy's gid 5, which"} {
		_, warnings, err := decide(linkerdPod(withGroups(0, 5, linkerdUID), annotated(annotationLinkerdGID, gid)), withLinkerd(), only4)
		if got := fmt.Sprint(warnings); err != nil || !strings.Contains(got, want) {
			t.Errorf("gid %q: %s, %v", gid, got, err)
		}
	}
}

// TestLinkerdExemption exempts what has no proxy, or sets up the capture itself.
func TestLinkerdExemption(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		pod    Pod
		meshes []config.MeshName
		cause  ExemptionCause
	}{
		{linkerdPod(), config.Meshes(), ""},
		{linkerdPod(), config.DefaultSettings().Meshes, NotInjected},
		{linkerdPod(func(p *Pod) { delete(p.Annotations, annotationLinkerdVersion) }), config.Meshes(), NotInjected},
		{linkerdPod(func(p *Pod) { p.Containers = p.Containers[:1] }), config.Meshes(), NoProxy},
		{linkerdPod(withInit(containerLinkerdInit, netAdmin)), config.Meshes(), InitContainer},
		{linkerdPod(withInit(containerLinkerdInit)), config.Meshes(), ""},
		{linkerdPod(withInit(containerInit, netAdmin)), config.Meshes(), ""},
	} {
		if got := ExemptionOf(test.pod, test.meshes); got.Cause != test.cause {
			t.Errorf("%v %+v: got %+v, want %q", test.meshes, test.pod, got, test.cause)
		}
		if got := Meshed(test.pod.Annotations, test.meshes); got != (test.cause != NotInjected) {
			t.Errorf("%v: meshed is %v", test.pod.Annotations, got)
		}
	}
}

// TestLinkerdSubnets skips clients, and no destinations.
func TestLinkerdSubnets(t *testing.T) {
	t.Parallel()
	intent, _, err := decide(linkerdPod(annotated(annotationSkipSubnets, "10.0.0.0/8, 10.1.0.0/16,fd00::/8")), withLinkerd(), only4)
	if want := "[10.0.0.0/8 fd00::/8]"; err != nil || fmt.Sprint(intent.ExcludeInboundRanges) != want || len(intent.ExcludeOutboundRanges) > 0 {
		t.Errorf("got %+v, %v", intent, err)
	}
	_, _, err = decide(linkerdPod(annotated(annotationSkipSubnets, "10.0.0.1")), withLinkerd(), only4)
	expect(t, "an address", err, "write 10.0.0.1/32")
}

// TestTwoMeshes chooses by the proxy's container, and refuses a pod with two proxies.
func TestTwoMeshes(t *testing.T) {
	t.Parallel()
	both := linkerdPod(annotated(annotationStatus, "{}"), func(p *Pod) { p.Containers = append(p.Containers, Container{Name: containerProxy}) })
	onlyLinkerd := linkerdPod(annotated(annotationStatus, "{}"))
	own := linkerdPod(annotated(annotationProxy, "app"))
	for name, test := range map[string]struct {
		pod     Pod
		meshes  []config.MeshName
		mesh    config.MeshName
		refused string
	}{
		"both proxies":            {both, config.Meshes(), config.Istio, "keys of istio and of linkerd"},
		"both, and one is off":    {both, []config.MeshName{config.Linkerd}, config.Linkerd, ""},
		"both marks, one proxy":   {onlyLinkerd, config.Meshes(), config.Linkerd, ""},
		"keys of our own, too":    {own, config.Meshes(), config.Linkerd, "keys of linkerd and of capture-cni"},
		"no mesh that is on":      {linkerdPod(), []config.MeshName{config.Istio}, "", "exempt: no annotation"},
		"keys that are not on":    {own, []config.MeshName{config.Istio, config.Linkerd}, config.Linkerd, ""},
		"both proxies, the other": {both, []config.MeshName{config.OwnKeys}, "", "exempt: no annotation"},
	} {
		settings := config.DefaultSettings()
		settings.Meshes = test.meshes
		_, _, err := decide(test.pod, settings, only4)
		expect(t, name, err, test.refused)
		if got, _ := choose(test.pod, test.meshes); (got != nil) != (test.mesh != "") || got != nil && got.name != test.mesh {
			t.Errorf("%s: got %T, want mesh %q", name, got, test.mesh)
		}
	}
}

// FuzzSkippedPorts expects of any list what linkerd-cni makes of it: the valid elements, and
// a warning for each other one; or a fault where none is valid.
func FuzzSkippedPorts(f *testing.F) {
	f.Add("80,443-445, 1,x")
	f.Add("65536,1-,-1,--,5-5")
	f.Fuzz(func(t *testing.T, text string) {
		intent, _, err := decide(linkerdPod(annotated(annotationSkipOutbound, text)), withLinkerd(), []netip.Addr{only4[0]})
		if err != nil {
			return
		}
		expectLoadable(t, Rules(intent))
		for port := range 1 << 16 {
			want := slices.ContainsFunc(strings.Split(text, ","), func(element string) bool {
				r, err := parsePortRange(element)
				return err == nil && int(r.First) <= port && port <= int(r.Last)
			}) || text == "" && port == 7
			if got := contains(intent.ExcludeOutboundPorts, uint16(port)); got != want {
				t.Fatalf("%q: port %d is skipped: %v, want %v", text, port, got, want)
			}
		}
	})
}
