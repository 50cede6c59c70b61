// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// releases are the releases that the guides name, each with its namespace.
var releases = map[string]string{
	"capture-cni": "capture-cni", "istiod": "istio-system", "istio-cni": "istio-system", "linkerd-cni": "linkerd-cni", "kuma": "kuma-system",
}

// checkHelm renders the chart with the settings of a call.
func (c *checker) checkHelm(t *testing.T, args []string) error {
	t.Helper()
	if err := c.checkFlags(t, "helm", args); err != nil {
		return err
	}
	_, operands := subcommand("helm", withoutSettings(args))
	if len(operands) == 0 || releases[operands[0]] != namespaceOf(args) {
		return fmt.Errorf("the release of %q, in namespace %q, is not known", args, namespaceOf(args))
	}
	if !slices.Contains(operands, "deploy/chart") {
		return nil
	}
	return c.render(t, settings(args))
}

// render returns why the chart refuses settings.
func (c *checker) render(t *testing.T, settings []string) error {
	t.Helper()
	key := strings.Join(settings, " ")
	if _, done := c.rendered[key]; !done {
		out, err := render(t, settings...)
		if err != nil {
			err = fmt.Errorf("rendering the chart: %w\n%s", err, out)
		}
		c.rendered[key] = err
	}
	return c.rendered[key]
}

// settings returns the values after --set, without those that take an earlier one back.
func settings(args []string) (values []string) {
	for i, arg := range args {
		if i > 0 && args[i-1] == "--set" && !strings.HasSuffix(arg, "=null") {
			values = append(values, arg)
		}
	}
	return values
}

// withoutSettings leaves out flags that take a value, and their values.
func withoutSettings(args []string) (rest []string) {
	for i := 0; i < len(args); i++ {
		if slices.Contains([]string{"--set", "--values", "--version", "-o"}, args[i]) {
			i++
			continue
		}
		rest = append(rest, args[i])
	}
	return rest
}

func namespaceOf(args []string) string {
	if i := slices.Index(args, "-n"); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

var (
	// namespaces are those that the guides use.
	namespaces = []string{"", "capture-cni", "istio-system", "default", "kube-system", "consul", "kuma-system", "shop", "NAMESPACE"}
	// named are the kinds whose objects must exist.
	named = map[string]string{
		"daemonset": "daemonset", "clusterrole": "clusterrole", "clusterrolebinding": "clusterrolebinding", "serviceaccount": "serviceaccount",
		"configmap": "configmap", "net-attach-def": "networkattachmentdefinition", "token": "serviceaccount",
	}
	constant = regexp.MustCompile(`^(?:reason|app\.kubernetes\.io/component)=(\S+)$`)
)

// checkKubectl looks up the flags, the namespace, and the names of our objects, containers
// and Events.
func (c *checker) checkKubectl(t *testing.T, args []string) error {
	t.Helper()
	if err := c.checkFlags(t, "kubectl", args); err != nil {
		return err
	}
	if namespace := namespaceOf(args); !slices.Contains(namespaces, namespace) {
		return fmt.Errorf("namespace %s is none of %q", namespace, namespaces)
	}
	if end := slices.Index(args, "--"); end >= 0 {
		if err := c.check(t, args[end+1:]); err != nil {
			return err
		}
		args = args[:end]
	}
	for i, arg := range args {
		kind, name, _ := strings.Cut(arg, "/")
		before := ""
		if i > 0 {
			before = args[i-1]
		}
		if created := slices.Contains(args, "create") && before != "token"; name == "" && named[before] != "" && !created {
			kind, name = before, arg
		}
		switch {
		case name != "" && named[kind] != "" && !slices.Contains(c.objects, named[kind]+"/"+name):
			return fmt.Errorf("there is no %s %s", kind, name)
		case before == "-c" && !slices.Contains(c.containers, arg):
			return fmt.Errorf("the agent's pod has no container %s", arg)
		}
		if match := constant.FindStringSubmatch(arg); match != nil && match[1] != "FailedCreatePodSandBox" && !isInSources(t, match[1]) {
			return fmt.Errorf("no program of ours writes %s", arg)
		}
	}
	return nil
}

// isInSources reports whether the agent's sources have a word in quotes.
func isInSources(t *testing.T, word string) bool {
	t.Helper()
	files, err := filepath.Glob("../install/*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(path string) bool {
		text, err := os.ReadFile(path)
		return err == nil && !strings.HasSuffix(path, "_test.go") && strings.Contains(string(text), `"`+word+`"`)
	})
}
