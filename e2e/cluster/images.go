// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
)

const module = "github.com/capture-cni/capture-cni"

// AppImage is the image of pods and sandboxes.
const AppImage = "test.local/apps:1"

// buildApps builds e2e/apps, as a program for the host and as an image.
func (c *Cluster) buildApps(ctx context.Context) error {
	build := exec.CommandContext(ctx, "go", "build", "-o", c.path("bin", "apps"), module+"/e2e/apps")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("building the applications: %w", err)
	}
	return buildImage(ctx, c.appImage(), "/apps="+module+"/e2e/apps")
}

// agentImage is the project's image with this tag, in a tarball of `make image`.
func agentImage(tag, path string) imageFile {
	return imageFile{"test.local/capture-cni/capture-cni:" + tag, ociArchive, path}
}

// buildAgent writes the project's image to a tarball, as `make image` does, for
// the host's architecture.
func (c *Cluster) buildAgent(ctx context.Context, tag string) (imageFile, error) {
	image := agentImage(tag, c.path("agent-"+tag+".tar"))
	return image, buildImage(ctx, image,
		"/capture-cni-node="+module+"/install/capture-cni-node",
		"/opt/capture-cni/capture-cni="+module+"/plugin/capture-cni", "/opt/capture-cni/capture-cni-lookup="+module+"/plugin/capture-cni-lookup")
}

func buildImage(ctx context.Context, image imageFile, programs ...string) error {
	args := append([]string{"run", module + "/deploy/image", "-out", image.path, "-name", image.name, "-platforms", "linux/" + runtime.GOARCH}, programs...)
	command := exec.CommandContext(ctx, "go", args...)
	command.Stderr = os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("building the image %s: %w", image.name, err)
	}
	return nil
}

// imageFile is the tarball of an image.
type imageFile struct{ name, format, path string }

// The formats of tarballs.
const (
	ociArchive    = "oci-archive"
	dockerArchive = "docker-archive"
)

// appImage is the image of pods and sandboxes.
func (c *Cluster) appImage() imageFile { return imageFile{AppImage, ociArchive, c.path("apps.tar")} }

// importImage imports an image on all nodes.
func (c *Cluster) importImage(ctx context.Context, image imageFile) error {
	for _, node := range c.Nodes {
		if err := node.importImage(ctx, image); err != nil {
			return fmt.Errorf("importing %s on %s: %w", image.name, node.Name, err)
		}
	}
	return nil
}
