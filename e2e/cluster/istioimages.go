// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"maps"
	"path/filepath"
)

// istioImages returns the images of Istio's charts, by name, with programs and files at
// the paths of Istio's own images. The image envoy is proxyv2 with Envoy itself, as its own
// project releases it; in proxyv2, a stand-in has its place.
func (c *Cluster) istioImages(ctx context.Context, sources string) (map[string]fileImage, error) {
	program := func(name string) string { return filepath.Join(c.Parts, "istio", name) }
	const bin = "/usr/local/bin/"
	installer, err := iptables(ctx) // which its repair of pods needs, and the validation of older releases
	if err != nil {
		return nil, err
	}
	proxy := maps.Clone(installer)
	proxy[bin+"pilot-agent"], proxy[bin+"envoy"] = program("pilot-agent"), c.path("bin", "apps")
	proxy["/var/lib/istio/envoy/envoy_bootstrap_tmpl.json"] = filepath.Join(sources, "tools", "packaging", "common", "envoy_bootstrap.json")
	envoy, err := libraries(ctx, filepath.Join(c.Parts, "envoy"))
	if err != nil {
		return nil, err
	}
	maps.Copy(envoy, proxy)
	envoy[bin+"envoy"] = filepath.Join(c.Parts, "envoy")
	installer[bin+"install-cni"], installer["/opt/cni/bin/istio-cni"] = program("install-cni"), program("istio-cni")
	return map[string]fileImage{
		"pilot": {user: "1337:1337", entrypoint: bin + "pilot-discovery", files: map[string]string{
			bin + "pilot-discovery": program("pilot-discovery"),
		}},
		"proxyv2":     {entrypoint: bin + "pilot-agent", files: proxy},
		"envoy":       {entrypoint: bin + "pilot-agent", files: envoy},
		"install-cni": {entrypoint: bin + "install-cni", files: installer},
	}, nil
}
