// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

const module = "github.com/capture-cni/capture-cni"

// AppImage is the image of pods and sandboxes.
const AppImage = "test.local/apps:1"

// buildApps builds e2e/apps, as a program for the host and as an image.
func (c *Cluster) buildApps(ctx context.Context) error {
	if err := goTool(ctx, "build", "-o", c.path("bin", "apps"), module+"/e2e/apps"); err != nil {
		return fmt.Errorf("building the applications: %w", err)
	}
	return buildImage(ctx, c.appImage(), "/apps="+module+"/e2e/apps")
}

// agentImage is the project's image with this tag, in a tarball of `make image`.
func agentImage(tag, path string) imageFile {
	return imageFile{ociArchive, path, []string{"test.local/capture-cni/capture-cni:" + tag}}
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
	args := append([]string{"run", module + "/deploy/image", "-out", image.path, "-name", image.names[0], "-version", "0.0.0", "-platforms", "linux/" + runtime.GOARCH}, programs...)
	if err := goTool(ctx, args...); err != nil {
		return fmt.Errorf("building the image %s: %w", image.names[0], err)
	}
	return nil
}

// goTool runs the go command in the product's module.
func goTool(ctx context.Context, args ...string) error {
	project, err := lab.Project(ctx)
	if err != nil {
		return err
	}
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir, command.Stderr, command.Env = project, os.Stderr, append(os.Environ(), "CGO_ENABLED=0")
	return command.Run()
}

// imageFile is the tarball of an image.
type imageFile struct {
	format, path string
	names        []string
}

// The formats of tarballs.
const (
	ociArchive    = "oci-archive"
	dockerArchive = "docker-archive"
)

// appImage is the image of pods and sandboxes.
func (c *Cluster) appImage() imageFile {
	return imageFile{ociArchive, c.path("apps.tar"), []string{AppImage}}
}

// loadFileImage builds an image of files and imports it on all nodes, under names.
func (c *Cluster) loadFileImage(ctx context.Context, image fileImage, names ...string) error {
	file := imageFile{dockerArchive, c.path(strings.NewReplacer("/", "-", ":", "-").Replace(names[0]) + ".tar"), names}
	if err := image.write(file.path, names); err != nil {
		return fmt.Errorf("building the image %s: %w", names[0], err)
	}
	return c.importImage(ctx, file)
}

// importImage imports an image on all nodes.
func (c *Cluster) importImage(ctx context.Context, image imageFile) error {
	for _, node := range c.Nodes {
		if err := node.importImage(ctx, image); err != nil {
			return fmt.Errorf("importing %s on %s: %w", image.names[0], node.Name, err)
		}
	}
	return nil
}
