// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// IstioNamespace is where Istio's charts are installed.
const IstioNamespace = "istio-system"

// istioImages is the prefix and tag of images with Istio's programs.
const istioImages, istioTag = "test.local/istio", "1"

// Revision is a control plane of Istio. The cluster has no name server, so sidecars
// connect to an address.
type Revision struct {
	Name    string // "" for the default one
	Address string
}

// controlPlane is a service with an address that is known before sidecars are injected;
// that of Istio's chart has none.
const controlPlane = `apiVersion: v1
kind: Service
metadata: {name: address-%[1]s, namespace: ` + IstioNamespace + `}
spec:
  clusterIP: %[2]s
  selector: {app: istiod, istio.io/rev: %[1]s}
  ports: [{port: 15012}]
`

// label is the revision's value of the label istio.io/rev.
func (r Revision) label() string {
	if r.Name == "" {
		return "default"
	}
	return r.Name
}

// service is the name of the revision's service, deployment and release.
func (r Revision) service() string {
	if r.Name == "" {
		return "istiod"
	}
	return "istiod-" + r.Name
}

// webhook is the name of the revision's webhook configuration.
func (r Revision) webhook() string {
	if r.Name == "" {
		return "istio-sidecar-injector"
	}
	return "istio-sidecar-injector-" + r.Name
}

// IstioImage is the name of an image of Istio's.
func IstioImage(name string) string { return istioImages + "/" + name + ":" + istioTag }

// LoadIstioImages builds images of Istio's programs, named as in Istio's charts, and
// imports them.
func (c *Cluster) LoadIstioImages(ctx context.Context, names ...string) error {
	sources, err := c.istioSources(ctx)
	if err != nil {
		return err
	}
	images, err := c.istioImages(ctx, sources)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := c.loadFileImage(ctx, images[name], IstioImage(name)); err != nil {
			return err
		}
	}
	return nil
}

// InstallIstio installs a control plane by Istio's own charts, and waits until it is
// ready. settings (key=value) are for the chart of istiod.
func (c *Cluster) InstallIstio(ctx context.Context, r Revision, settings ...string) error {
	if err := c.routeServices(); err != nil {
		return err
	}
	if err := c.installIstioChart(ctx, "istio-base", "base"); err != nil {
		return err
	}
	if _, err := c.Kubectl(ctx, fmt.Sprintf(controlPlane, r.label(), r.Address), "apply", "--filename=-"); err != nil {
		return err
	}
	server := r.Address + ":15012"
	if err := c.installIstioChart(ctx, r.service(), "istio-control/istio-discovery", append([]string{
		"revision=" + r.Name, "pilot.cni.enabled=true", "autoscaleEnabled=false",
		"nodeSelector.kubernetes\\.io/hostname=" + c.Nodes[0].Name, // the API server's route to services goes by this node
		"resources.requests.cpu=1m", "resources.requests.memory=1Mi",
		"global.proxy.resources.requests.cpu=1m", "global.proxy.resources.requests.memory=1Mi",
		"global.caAddress=" + server, "meshConfig.defaultConfig.discoveryAddress=" + server,
		"meshConfig.defaultConfig.proxyMetadata.ISTIOD_SAN=" + r.service() + "." + IstioNamespace + ".svc",
	}, settings...)...); err != nil {
		return err
	}
	// istiod writes its CA into its webhook once it is ready; until then no pod can be created.
	_, err := c.Kubectl(ctx, "", "wait", "--for=jsonpath={.webhooks[0].clientConfig.caBundle}", "--timeout="+Timeout.String(), "mutatingwebhookconfiguration/"+r.webhook())
	return err
}

// UninstallIstio removes a control plane.
func (c *Cluster) UninstallIstio(ctx context.Context, r Revision) error {
	_, err := c.Helm(ctx, "uninstall", r.service(), "--namespace", IstioNamespace, "--wait", "--timeout", Timeout.String())
	return err
}

// formerPrefixes are of the values of charts before Istio 1.23, which ignore values
// without it. Later charts ignore those with it.
var formerPrefixes = map[string]string{"istio-control/istio-discovery": "pilot.", istioCNI: "cni."}

// installIstioChart installs one of Istio's charts, or upgrades it.
func (c *Cluster) installIstioChart(ctx context.Context, release, chart string, settings ...string) error {
	sources, err := c.istioSources(ctx)
	if err != nil {
		return err
	}
	args := []string{
		"upgrade", "--install", release, filepath.Join(sources, "manifests", "charts", chart), "--namespace", IstioNamespace, "--create-namespace",
		"--reset-values", "--wait", "--timeout", Timeout.String(),
		"--set", "global.hub=" + istioImages + ",global.tag=" + istioTag + ",global.imagePullPolicy=Never",
	}
	for _, setting := range settings {
		args = append(args, "--set", setting, "--set", formerPrefixes[chart]+setting)
	}
	_, err = c.Helm(ctx, args...)
	return err
}

// istioSources returns the directory of Istio's sources.
func (c *Cluster) istioSources(ctx context.Context) (string, error) {
	return moduleSources(ctx, "istio", "istio.io/istio")
}

// moduleSources returns the directory of a module's sources, which Go's module cache has
// since the part of this name was built.
func moduleSources(ctx context.Context, part, module string) (string, error) {
	project, err := lab.Project(ctx)
	if err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	command.Dir = filepath.Join(project, "e2e", "parts", part)
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("finding the sources of %s: %w: %s", module, err, out)
	}
	var found struct{ Dir string }
	if err := json.Unmarshal(out, &found); err != nil {
		return "", fmt.Errorf("finding the sources of %s: %w", module, err)
	}
	return found.Dir, nil
}
