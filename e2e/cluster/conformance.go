// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"os"
	"path/filepath"

	"github.com/capture-cni/capture-cni/e2e/debian"
)

// conformanceTools are packages with the programs that conformance tests run in pods.
var conformanceTools = debian.Request{Suite: "bookworm", Packages: []string{
	"bash", "bind9-dnsutils", "bind9-host", "busybox", "coreutils", "curl", "dash", "grep", "hostname", "iproute2", "libc-bin", "netcat-openbsd", "sed",
}}

// nameService is glibc's default of other distributions: files come before servers.
const nameService = "hosts: files dns\n"

// LoadConformanceImages imports an image under names: agnhost, which conformance tests run in pods,
// with a command of its own if the pod has none, and Debian's packages, which fetched keeps.
func (c *Cluster) LoadConformanceImages(ctx context.Context, fetched, command string, names ...string) error {
	root, err := debian.Unpack(ctx, fetched, conformanceTools)
	if err != nil {
		return err
	}
	order := c.path("nsswitch.conf")
	if err := os.WriteFile(order, []byte(nameService), 0o644); err != nil {
		return err
	}
	image := fileImage{entrypoint: "/agnhost", command: []string{command}, root: root, files: map[string]string{
		"/etc/nsswitch.conf": order,
		"/bin/top":           filepath.Join(root, "bin", "busybox"),    // others end without a terminal
		"/bin/nc":            filepath.Join(root, "bin", "nc.openbsd"), // which Debian links when it installs the package
	}}
	for _, file := range []string{"agnhost", "localhost.crt", "localhost.key"} {
		image.files["/"+file] = filepath.Join(c.Parts, file)
	}
	return c.loadFileImage(ctx, image, names...)
}
