// SPDX-License-Identifier: Apache-2.0

// Command helm renders and lints charts by Helm's own packages, as `helm template` and
// `helm lint --strict` do. It has only what renders, because the whole Helm takes longer to
// build; TestOracleHelm compares the two.
package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/spf13/pflag"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"helm.sh/helm/v3/pkg/releaseutil"
	"helm.sh/helm/v3/pkg/strvals"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := pflag.NewFlagSet("helm", pflag.ContinueOnError)
	namespace := flags.String("namespace", "default", "namespace of the release")
	kubeVersion := flags.String("kube-version", chartutil.DefaultCapabilities.KubeVersion.Version, "version of Kubernetes")
	files := flags.StringArray("values", nil, "files of values")
	objects := flags.StringArray("set-json", nil, "values in JSON")
	settings := flags.StringArray("set", nil, "values as key=value")
	flags.Bool("strict", true, "warnings are errors, always")
	if err := flags.Parse(args); err != nil {
		return err
	}
	values := map[string]any{}
	for _, file := range *files {
		read, err := chartutil.ReadValuesFile(file)
		if err != nil {
			return err
		}
		values = chartutil.MergeTables(read, values)
	}
	for _, object := range *objects {
		if err := strvals.ParseJSON(object, values); err != nil {
			return fmt.Errorf("failed parsing --set-json data %s", object)
		}
	}
	for _, setting := range *settings {
		if err := strvals.ParseInto(setting, values); err != nil {
			return fmt.Errorf("failed parsing --set data: %w", err)
		}
	}
	switch args := flags.Args(); {
	case len(args) == 3 && args[0] == "template":
		return template(args[1], args[2], *namespace, *kubeVersion, values)
	case len(args) == 2 && args[0] == "lint":
		return check(args[1], *namespace, values)
	}
	return errors.New("expected template NAME CHART, or lint CHART")
}

func template(release, directory, namespace, kubeVersion string, values map[string]any) error {
	loaded, err := loader.Load(directory)
	if err != nil {
		return err
	}
	if err := chartutil.ProcessDependenciesWithMerge(loaded, values); err != nil {
		return err
	}
	version, err := chartutil.ParseKubeVersion(kubeVersion)
	if err != nil {
		return err
	}
	if wanted := loaded.Metadata.KubeVersion; wanted != "" && !chartutil.IsCompatibleRange(wanted, version.Version) {
		return fmt.Errorf("chart requires kubeVersion: %s which is incompatible with Kubernetes %s", wanted, version.Version)
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	options := chartutil.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(loaded, values, options, capabilities)
	if err != nil {
		return err
	}
	return printManifests(loaded, all)
}

// printManifests prints the objects in the order of their installation, and then the hooks.
func printManifests(loaded *chart.Chart, values chartutil.Values) error {
	rendered, err := engine.Render(loaded, values)
	if err != nil {
		return err
	}
	for name := range rendered {
		if path.Base(name) == "NOTES.txt" {
			delete(rendered, name)
		}
	}
	hooks, manifests, err := releaseutil.SortManifests(rendered, nil, releaseutil.InstallOrder)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, m := range manifests {
		fmt.Fprintf(&text, "---\n# Source: %s\n%s\n", m.Name, m.Content)
	}
	fmt.Println(strings.TrimSpace(text.String()))
	for _, hook := range hooks {
		fmt.Printf("---\n# Source: %s\n%s\n", hook.Path, hook.Manifest)
	}
	return nil
}

func check(directory, namespace string, values map[string]any) error {
	linter := lint.AllWithKubeVersion(directory, values, namespace, nil)
	for _, message := range linter.Messages {
		fmt.Println(message)
	}
	if linter.HighestSeverity >= support.WarningSev {
		return errors.New("1 chart(s) linted, 1 chart(s) failed")
	}
	return nil
}
