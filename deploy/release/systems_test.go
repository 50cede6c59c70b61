// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// ofOneSystem are packages whose contents differ between systems.
var ofOneSystem = []string{"syscall", "golang.org/x/sys/unix", "golang.org/x/sys/windows", "github.com/vishvananda/netlink", "github.com/vishvananda/netns"}

// TestOtherSystems expects that no package of ours that a program for another system than
// Linux consists of imports what differs between systems: compiling it there takes minutes.
func TestOtherSystems(t *testing.T) {
	t.Parallel()
	for _, a := range archives {
		if a.system == "linux" {
			continue
		}
		list := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps", "-f", `{{.ImportPath}} {{join .Imports " "}}`}, a.sources...)...)
		list.Dir, list.Env = "../..", append(os.Environ(), "GOOS="+a.system, "GOARCH="+a.architecture)
		out, err := list.Output()
		lab.Check(t, err)
		ours := 0
		for line := range strings.Lines(string(out)) {
			imports := strings.Fields(line)
			if !strings.HasPrefix(imports[0], "github.com/capture-cni/capture-cni/") {
				continue
			}
			ours++
			for _, imported := range imports[1:] {
				forSignals := imported == "syscall" && strings.HasSuffix(imports[0], "/deploy/kubectl-capture_cni") // each system has them
				if slices.Contains(ofOneSystem, imported) && !forSignals {
					t.Errorf("%s for %s/%s: %s imports %s: keep that in files for linux alone", a.name, a.system, a.architecture, imports[0], imported)
				}
			}
		}
		if ours < 5 {
			t.Errorf("%s for %s/%s consists of %d packages of ours", a.name, a.system, a.architecture, ours)
		}
	}
}
