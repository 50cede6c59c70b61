// SPDX-License-Identifier: Apache-2.0

package traffic

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// istioSources returns the files of Istio's module that match a pattern: Go's module
// cache has it in the version that the parts are built from.
func istioSources(t *testing.T, pattern string) []string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "istio.io/istio")
	command.Dir = filepath.Join("..", "parts", "istio")
	out, err := command.Output()
	if err != nil {
		t.Fatalf("downloading Istio's module: %v\n%s", err, out)
	}
	var module struct{ Dir string }
	lab.Check(t, json.Unmarshal(out, &module))
	files, err := filepath.Glob(filepath.Join(module.Dir, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s in %s: %v", pattern, module.Dir, err)
	}
	return files
}

// pod has all annotations, as Istio's package has no defaults.
func (c istioCase) pod() *corev1.Pod {
	annotations := map[string]string{
		"includeInboundPorts": "", "excludeInboundPorts": "", "includeOutboundIPRanges": "", "excludeOutboundPorts": "",
	}
	for key, value := range c.annotations {
		annotations[key] = value
	}
	return injected(spelled(annotations), c.env)
}

// inWorld replaces names of groups, which a user database would have to know, and of
// interfaces by those of a world.
var inWorld = strings.NewReplacer("java", "5", "ftp", "5", "eth1", "net1", "not-istio-nic", "net1")

// applyGolden applies the rules of a golden file: those of IPv4, then those of IPv6.
func applyGolden(host *lab.Host, golden string, intent capture.Intent) error {
	content, err := os.ReadFile(golden)
	if err != nil {
		return err
	}
	var rules, table strings.Builder
	families, last := []string{}, ""
	for line := range strings.Lines(inWorld.Replace(string(content))) {
		name, begins := strings.CutPrefix(line, "* ")
		if begins && name <= last { // tables are sorted: IPv6's follow
			families = append(families, rules.String())
			rules.Reset()
		}
		if begins {
			last = name
		}
		if begins || table.Len() > 0 {
			table.WriteString(line)
		}
		if strings.TrimSpace(line) == "COMMIT" {
			rules.WriteString(table.String())
			table.Reset()
		}
	}
	families = append(families, rules.String())
	if (len(families) == 2) != (intent.IPv6 == capture.Captured) {
		return fmt.Errorf("%s has rules of %d families", golden, len(families))
	}
	for n, rules := range families {
		err = errors.Join(err, command(host, rules, []string{"iptables-restore", "ip6tables-restore"}[n], "--noflush"))
	}
	return errors.Join(err, istioRoutes(host, intent))
}

// istioRoutes does what istio-iptables does apart from rules.
func istioRoutes(host *lab.Host, intent capture.Intent) (err error) {
	for _, family := range []string{"-4", "-6"} {
		if family == "-6" && intent.IPv6 != capture.Captured {
			continue
		}
		if family == "-6" {
			err = errors.Join(err, command(host, "", "ip", family, "address", "add", "::6/128", "dev", "lo"))
		}
		if intent.Transparent {
			err = errors.Join(err, command(host, "", "ip", family, "rule", "add", "fwmark", "1337", "lookup", "133"),
				command(host, "", "ip", family, "route", "add", "local", "default", "dev", "lo", "table", "133"))
		}
	}
	return err
}

// command runs a program in a host's namespace.
func command(host *lab.Host, stdin, program string, args ...string) error {
	return host.Do(func() error {
		command := exec.Command(program, args...)
		command.Stdin = strings.NewReader(stdin)
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("%s %q: %w: %s", program, args, err, out)
		}
		return nil
	})
}
