// SPDX-License-Identifier: Apache-2.0

package capturetest

import "github.com/capture-cni/capture-cni/config"

// mesh describes pods as a mesh's injector changes them. One mesh is enough for the test, because the
// rules of all meshes use the same backends.
type mesh struct {
	name         config.MeshName
	notInjected  [2]string // label of a namespace whose pods the injector does not change
	mark, marked string    // annotation that puts a pod into the mesh, and its value
	mode         string    // annotation whose values are Modes
	notInbound   string    // annotation with the inbound ports that are not captured
	notOutbound  string    // annotation with the outbound ports that are not captured
	proxy        string    // name of the proxy's container
	dualStack    [2]string // variable with which the proxy expects addresses of both families
	network      string    // network that Multus adds to pods
}

// form describes the test's pods.
var form = mesh{
	name:        config.Istio,
	notInjected: [2]string{"istio-injection", "disabled"},
	mark:        "sidecar.istio.io/status",
	marked:      `{"containers":["istio-proxy"],"revision":"capture-cni-test"}`,
	mode:        "sidecar.istio.io/interceptionMode",
	notInbound:  "traffic.sidecar.istio.io/excludeInboundPorts",
	notOutbound: "traffic.sidecar.istio.io/excludeOutboundPorts",
	proxy:       "istio-proxy",
	dualStack:   [2]string{"ISTIO_DUAL_STACK", "true"},
	network:     "default/istio-cni",
}
