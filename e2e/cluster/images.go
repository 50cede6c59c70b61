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
	return buildImage(ctx, c.path("apps.tar"), AppImage, "/apps="+module+"/e2e/apps")
}

// buildAgent writes the project's image to a tarball, as `make image` does, for
// the host's architecture.
func (c *Cluster) buildAgent(ctx context.Context, tag string) (tarball string, err error) {
	tarball = c.path("agent-" + tag + ".tar")
	return tarball, buildImage(ctx, tarball, "test.local/capture-cni/capture-cni:"+tag,
		"/capture-cni-node="+module+"/install/capture-cni-node",
		"/opt/capture-cni/capture-cni="+module+"/plugin/capture-cni", "/opt/capture-cni/capture-cni-lookup="+module+"/plugin/capture-cni-lookup")
}

func buildImage(ctx context.Context, out, name string, programs ...string) error {
	args := append([]string{"run", module + "/deploy/image", "-out", out, "-name", name, "-platforms", "linux/" + runtime.GOARCH}, programs...)
	command := exec.CommandContext(ctx, "go", args...)
	command.Stderr = os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("building the image %s: %w", name, err)
	}
	return nil
}
