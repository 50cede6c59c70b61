// SPDX-License-Identifier: Apache-2.0

package terms

// IstioCNI is the type of istio-cni in a conflist.
const IstioCNI = "istio-cni"

// IstioCNIDaemonSet is the DaemonSet of istio-cni.
const IstioCNIDaemonSet = "istio-cni-node"

// MeshPlugin is a CNI plugin of another mesh.
type MeshPlugin struct {
	Type       string   // in a conflist
	DaemonSets []string // by which its charts install it
}

// MeshPlugins returns the plugins of meshes other than Istio.
func MeshPlugins() []MeshPlugin {
	return []MeshPlugin{
		{"linkerd-cni", []string{"linkerd-cni"}},
		{"kuma-cni", []string{"kuma-cni-node"}},
		{"consul-cni", []string{"consul-cni", "consul-consul-cni"}},
	}
}

// SocketBalancingEffect is why it matters which address a connection has when it leaves a
// socket.
const SocketBalancingEffect = "a sidecar then sees the address of a Service's backend, so that its routes and policies for the Service do not apply"
