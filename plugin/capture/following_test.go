// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"maps"
	"reflect"
	"testing"

	"github.com/capture-cni/capture-cni/config"
)

// followedKeys says of each annotation whether a running pod can follow its edits: those of
// exclusions and inclusions, and never one that exempts the pod, or decides on its mesh, its mode,
// its fence, or the proxy's ports and ids.
var followedKeys = map[string]bool{
	annotationStatus: false, annotationInject: false, annotationInterceptionMode: false,
	annotationIncludeInboundPorts: true, annotationExcludeInboundPorts: true,
	annotationIncludeOutboundPorts: true, annotationExcludeOutboundPorts: true,
	annotationIncludeOutboundRanges: true, annotationExcludeOutboundRanges: true, annotationExcludeInterfaces: true,
	annotationRerouteInterfaces: false, annotationKubevirtInterfaces: false,

	annotationLinkerdVersion: false, annotationLinkerdUID: false, annotationLinkerdGID: false,
	annotationSkipInbound: true, annotationSkipOutbound: true, annotationSkipSubnets: true,

	annotationProxy: false, annotationInboundPort: false, annotationOutboundPort: false, annotationDNSPort: false, annotationTProxy: false,
	annotationExceptInbound: true, annotationExceptPorts: true, annotationExceptRanges: true, annotationOnlyRanges: true,
	annotationFence: false, annotationFenceAllow: false,

	annotationConsulStatus: false, annotationConsulConfig: false, annotationConsulDualStack: false,
	annotationKumaInjected: false, annotationKumaConfig: false,
}

// TestFollowing edits and deletes each annotation of a pod of each mesh. A new annotation fails
// until it is in the table.
func TestFollowing(t *testing.T) {
	t.Parallel()
	for _, mesh := range config.Meshes() {
		created := Pod{Annotations: map[string]string{}}
		for _, a := range Annotations(mesh) {
			if !isFenceKey(a.Key) {
				created.Annotations[a.Key] = "created"
			}
		}
		for _, a := range Annotations(mesh) {
			follows, decided := followedKeys[a.Key]
			if !decided {
				t.Errorf("%s: no decision whether a running pod follows it", a.Key)
			}
			edited, deleted := maps.Clone(created.Annotations), maps.Clone(created.Annotations)
			edited[a.Key] = "edited"
			delete(deleted, a.Key)
			for _, now := range []map[string]string{edited, deleted} {
				want := created.Annotations
				if follows {
					want = now
				}
				if got := created.Following(Pod{Annotations: now}, config.Meshes()).Annotations; !maps.Equal(got, want) {
					t.Errorf("%s: %v edited to %v becomes %v", a.Key, created.Annotations, now, got)
				}
				fenced := Pod{Annotations: maps.Clone(created.Annotations)}
				fenced.Annotations[annotationFence] = "true"
				if got := fenced.Following(Pod{Annotations: now}, config.Meshes()); !reflect.DeepEqual(got, fenced) {
					t.Errorf("%s: a fenced pod edited to %v becomes %v", a.Key, now, got.Annotations)
				}
			}
		}
	}
}

// TestFollowingIntent edits all annotations of all meshes at once. In the intent, only lists of
// what is captured change.
func TestFollowingIntent(t *testing.T) {
	t.Parallel()
	edits := map[string]string{
		annotationInject: "false", annotationInterceptionMode: modeTProxy, annotationRerouteInterfaces: "eth1", annotationKubevirtInterfaces: "eth1",
		annotationIncludeInboundPorts: "80", annotationExcludeInboundPorts: "81", annotationIncludeOutboundPorts: "82",
		annotationExcludeOutboundPorts: "83", annotationIncludeOutboundRanges: "127.0.0.0/8", annotationExcludeOutboundRanges: "10.0.0.0/8",
		annotationExcludeInterfaces: "eth2", annotationSkipInbound: "84", annotationSkipOutbound: "85", annotationSkipSubnets: "10.0.0.0/8",
		annotationLinkerdUID: "7", annotationLinkerdGID: "8", annotationProxy: "app", annotationInboundPort: "1", annotationOutboundPort: "2",
		annotationDNSPort: "3", annotationTProxy: "true", annotationExceptInbound: "86", annotationExceptPorts: "87",
		annotationExceptRanges: "10.0.0.0/8", annotationOnlyRanges: "192.0.2.0/24", annotationFence: "false", annotationFenceAllow: "in:tcp:1@10.0.0.0/8",
	}
	settings := config.DefaultSettings()
	settings.Meshes = config.Meshes()
	for _, mesh := range config.Meshes() {
		created := map[config.MeshName]Pod{
			config.Istio: {
				Annotations: map[string]string{annotationStatus: ""}, Containers: []Container{{Name: "app", UID: ID{Number: 1000}}, {Name: containerProxy}},
			},
			config.Linkerd: {
				Annotations: map[string]string{annotationLinkerdVersion: ""},
				Containers:  []Container{{Name: "app", UID: ID{Number: 1000}}, {Name: containerLinkerdProxy}},
			},
			config.OwnKeys: ownPod(keys{"outbound-port": "3129", "inbound-port": "8443"}),
		}[mesh]
		if meshOf(mesh).whole != "" {
			continue // it has no annotation that a running pod follows
		}
		edited := created.With(nil, edits)
		followed, err := Decide(created.Following(edited, config.Meshes()), settings)
		if err != nil || followed.Exemption.Cause != "" {
			t.Errorf("%s: %v, %+v", mesh, err, followed.Exemption)
			continue
		}
		before, err := Decide(created, settings)
		if err != nil {
			t.Fatal(err)
		}
		lists := func(in Intent) (lists, rest Intent) {
			rest = in
			for _, name := range []string{
				"InboundPorts", "ExcludeInboundPorts", "ExcludeInboundRanges", "IncludeOutboundPorts", "ExcludeOutboundPorts",
				"OutboundRanges", "ExcludeOutboundRanges", "CaptureLoopback", "ExcludeInterfaces",
			} {
				reflect.ValueOf(&rest).Elem().FieldByName(name).SetZero()
				reflect.ValueOf(&lists).Elem().FieldByName(name).Set(reflect.ValueOf(in).FieldByName(name))
			}
			return lists, rest
		}
		listsBefore, restBefore := lists(before.Intent)
		listsAfter, restAfter := lists(followed.Intent)
		if reflect.DeepEqual(listsBefore, listsAfter) || !reflect.DeepEqual(restBefore, restAfter) {
			t.Errorf("%s: %+v\nbecomes %+v", mesh, before.Intent, followed.Intent)
		}
	}
}
