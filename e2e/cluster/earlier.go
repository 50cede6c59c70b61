// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"path/filepath"
)

// LoadEarlierImage imports the image of an earlier release on all nodes, with its version
// as the tag.
func (c *Cluster) LoadEarlierImage(ctx context.Context, version string) error {
	return c.importImage(ctx, agentImage(version, filepath.Join(c.Parts, version, "image.tar")))
}

// InstallEarlier is Install of an earlier release, by its own chart.
func (c *Cluster) InstallEarlier(ctx context.Context, version string, settings ...string) error {
	return c.install(ctx, filepath.Join(c.Parts, version, "chart"), append([]string{"image.tag=" + version}, settings...))
}
