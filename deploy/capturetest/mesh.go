// SPDX-License-Identifier: Apache-2.0

package capturetest

import "github.com/capture-cni/capture-cni/config"

// mesh is the form that a mesh's injector gives to pods. The rules of all meshes pass through the
// same backends, so one form is enough for the test.
type mesh struct {
	name         config.MeshName
	notInjected  [2]string // label of a namespace in which the injector changes no pods
	mark, marked string    // annotation that puts a pod into the mesh, and its value
	mode         string    // annotation whose values are a Mode
	notInbound   string    // annotations of ports that are not captured
	notOutbound  string
	proxy        string    // name of the container
	dualStack    [2]string // variable of the proxy, which expects both families of addresses
	network      string    // that Multus adds to pods
}

// form is that of the test's pods.
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
