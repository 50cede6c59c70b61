// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/report"
)

// TestTraffic expects the answers of the guards about all pods of a node, and about one pod. With -o
// wide, list shows the version of a pod's rules.
func TestTraffic(t *testing.T) {
	t.Parallel()
	c := sampleCluster(t)
	var asked [][]string
	pods := []report.Traffic{
		{Namespace: "shop", Name: "web", Mesh: "istio", Connections: []report.Connections{{Decision: "captured", Reason: "inbound", Count: 7}, {Decision: "captured", Reason: "dns", Count: 3}}},
		{Namespace: "shop", Name: "mail\x1b[2J", Mesh: "istio", Connections: []report.Connections{{Decision: "exempt", Reason: "range", Count: 2}, {Decision: "own", Reason: "proxy", Count: 9}}},
		{Namespace: "shop", Name: "stock", Mesh: "istio", Unknown: "the pod is outdated"},
		{Namespace: "shop", Name: "web", Mesh: "istio", State: report.Exempt, Unknown: "the pod is exempt"},
		{Namespace: "bank", Name: "vault", Mesh: "istio", Unknown: "the pod is outdated"},
	}
	x := fleet.Explainer{Client: c.client(t), Namespace: fleet.DefaultNamespace, Exec: func(_ context.Context, _ fleet.Agent, container string, command []string, out io.Writer) error {
		asked = append(asked, append([]string{container}, command...))
		return json.NewEncoder(out).Encode(report.NodeTraffic{Form: report.ExplanationForm, Pods: pods})
	}}
	all, err := x.Traffic(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"pod shop/stock: the pod is outdated", "pod bank/vault: the pod is outdated"}; !slices.Equal(all.Unknown, want) {
		t.Errorf("of all namespaces: %q", all.Unknown)
	}
	if all, err = x.Traffic(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	writeTraffic(&out, all)
	const want = `NAMESPACE  POD       MESH   CAPTURED  EXEMPT  REFUSED  FENCED
shop       mail?[2J  istio  0         2       0        0
shop       web       istio  10        0       0        0

Not known: pod shop/stock: the pod is outdated
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	measured := pods
	pods = measured[3:4]
	if one, err := x.PodTraffic(t.Context(), "shop", "web"); err != nil || !slices.Equal(one.Unknown, []string{"pod shop/web: the pod is exempt"}) {
		t.Errorf("the exempt pod: %v, %v", one, err)
	}
	asked, pods = asked[:1], measured[:1]
	one, err := x.PodTraffic(t.Context(), "shop", "web")
	if err != nil {
		t.Fatal(err)
	}
	out.Reset()
	writePodTraffic(&out, one)
	if diff := cmp.Diff("DECISION  REASON   CONNECTIONS\ncaptured  inbound  7\ncaptured  dns      3\n", out.String()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	out.Reset()
	one.Pods[0].Connections = nil
	writePodTraffic(&out, one)
	writeTraffic(&out, fleet.Traffic{})
	if got := out.String(); got != "No connections found.\nNo pods found.\n" {
		t.Errorf("of a pod without connections, and of no pods: %q", got)
	}
	if want := [][]string{{"guard", "/capture-cni-node", "traffic"}, {"guard", "/capture-cni-node", "traffic", "shop/web"}}; !slices.EqualFunc(asked, want, slices.Equal) {
		t.Errorf("asked %q", asked)
	}
	wide, _, _ := c.run(t, "list", "-o", "wide")
	expect(t, wide, "STATE        RULES  CAUSE\n", "outdated     v4\n")
	_, errors, status := c.run(t, "traffic", "shop/web") // this API server executes no commands
	expect(t, errors, "executing /capture-cni-node traffic shop/web in pod")
	if status != 2 {
		t.Errorf("status %d", status)
	}
}
