// SPDX-License-Identifier: Apache-2.0

package project

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// unreached are the functions of config that neither executable in the runtime's directory
// calls, and why config has them all the same. plugin has none.
var unreached = map[string]string{
	"plugin/capture.Annotations":       "the agent, documents and tests read the keys of the meshes, which are here",
	"config.FormatDirectories":         "the agent writes the file that the plugin parses",
	"config.GuardSocket":               "the agent makes this name of the socket next to the plugin's",
	"config.Key.Accepts":               "the agent checks an entry of another program by the plugin's table of keys",
	"config.NetConf.ExcludesNamespace": "the guard decides about pods by the strict form, as an ADD by the lenient one",
}

// TestPluginIsWhatRuns expects each package below plugin to be linked by capture-cni or
// capture-cni-lookup, and each of their functions to be reached by one of the two: what
// the agent or the guard alone needs is theirs.
func TestPluginIsWhatRuns(t *testing.T) {
	t.Parallel()
	executables := []string{module + "/plugin/capture-cni", module + "/plugin/capture-cni-lookup"}
	linked := map[string]bool{}
	packages := listPackages(t)
	for _, p := range packages {
		if slices.Contains(executables, p.ImportPath) {
			linked[p.ImportPath] = true
			for _, dependency := range p.Deps {
				linked[dependency] = true
			}
		}
	}
	for _, p := range packages {
		if strings.HasPrefix(p.ImportPath, module+"/plugin/") && !linked[p.ImportPath] {
			t.Errorf("%s is linked by neither executable: expected it below install", p.ImportPath)
		}
	}
	found := map[string]bool{}
	for _, name := range unreachable(t, executables...) {
		found[name] = true
		if unreached[name] == "" {
			t.Errorf("%s is reached by neither executable: expected it in a package of its caller", name)
		}
	}
	for name := range unreached {
		if !found[name] {
			t.Errorf("%s is reached: it needs no exception", name)
		}
	}
}

// unreachable returns the functions of our packages that the executables link and never
// call, as "directory.Type.Function".
func unreachable(t *testing.T, executables ...string) (names []string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"tool", "-modfile=../tools/go.mod", "deadcode", "-json"}, executables...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	var packages []struct {
		Path  string
		Funcs []struct{ Name string }
	}
	if err := json.Unmarshal(out, &packages); err != nil {
		t.Fatal(err)
	}
	for _, p := range packages {
		for _, f := range p.Funcs {
			names = append(names, strings.TrimPrefix(p.Path, module+"/")+"."+f.Name)
		}
	}
	return names
}
