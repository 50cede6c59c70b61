// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"path/filepath"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// LoadEarlierImage imports the image of the release before this one on all nodes, with its
// version as the tag.
func (c *Cluster) LoadEarlierImage(ctx context.Context) error {
	return c.importImage(ctx, agentImage(lab.EarlierVersion, filepath.Join(c.Parts, lab.EarlierVersion, "image.tar")))
}

// InstallEarlier is Install of the release before this one, by its own chart.
func (c *Cluster) InstallEarlier(ctx context.Context, settings ...string) error {
	return c.install(ctx, filepath.Join(c.Parts, lab.EarlierVersion, "chart"), append([]string{"image.tag=" + lab.EarlierVersion}, settings...))
}
