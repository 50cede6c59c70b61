// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"path/filepath"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// Namespace is where the chart is installed, as a release of the same name.
const Namespace = "capture-cni"

// LoadAgentImage builds the agent's image and imports it on all nodes.
func (c *Cluster) LoadAgentImage(ctx context.Context, tag string) error {
	image, err := c.buildAgent(ctx, tag)
	if err != nil {
		return err
	}
	return c.importImage(ctx, image)
}

// Install installs or upgrades the chart, as an operator does, with settings
// (key=value), and waits until every agent is ready.
func (c *Cluster) Install(ctx context.Context, settings ...string) error {
	chart, err := Chart(ctx)
	if err != nil {
		return err
	}
	return c.install(ctx, chart, settings)
}

// Apply is Install without waiting for agents.
func (c *Cluster) Apply(ctx context.Context, settings ...string) error {
	chart, err := Chart(ctx)
	if err != nil {
		return err
	}
	return c.apply(ctx, chart, settings)
}

func (c *Cluster) apply(ctx context.Context, chart string, settings []string, flags ...string) error {
	args := append([]string{
		"upgrade", "--install", Namespace, chart, "--namespace", Namespace, "--create-namespace",
		"--reset-values", "--set", "image.registry=test.local,image.pullPolicy=Never,maxUnavailable=100%",
	}, flags...)
	for _, setting := range settings {
		args = append(args, "--set", setting)
	}
	_, err := c.Helm(ctx, args...)
	return err
}

func (c *Cluster) install(ctx context.Context, chart string, settings []string) error {
	if err := c.apply(ctx, chart, settings, "--wait", "--timeout", Timeout.String()); err != nil {
		return err
	}
	// helm --wait returns with up to maxUnavailable agents unready.
	_, err := c.Kubectl(ctx, "", "--namespace", Namespace, "rollout", "status", "daemonset/capture-cni-node", "--timeout", Timeout.String())
	return err
}

// Uninstall removes the chart's release; files on the nodes stay.
func (c *Cluster) Uninstall(ctx context.Context) error {
	_, err := c.Helm(ctx, "uninstall", Namespace, "--namespace", Namespace, "--wait", "--timeout", Timeout.String())
	return err
}

// Chart returns the directory of the chart.
func Chart(ctx context.Context) (string, error) {
	project, err := lab.Project(ctx)
	return filepath.Join(project, "deploy", "chart"), err
}
