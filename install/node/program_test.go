// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/capture-cni/capture-cni/install/host"
)

// TestProgramIsTried replaces a program by a copy that runs, and by none that does not.
func TestProgramIsTried(t *testing.T) {
	t.Parallel()
	fault := errors.New("exec format error")
	for want, tried := range map[string]error{"new": nil, "old": fault} {
		settings := machine(t, map[string]string{"/opt/cni/bin/capture-cni": "old", "/copy/capture-cni": "new", "/var/lib/capture-cni/owner": "mesh"})
		bin, err := host.OpenDir(settings.at("/opt/cni/bin"))
		if err != nil {
			t.Fatal(err)
		}
		defer bin.Close()
		state, err := host.OpenDir(settings.at("/var/lib/capture-cni"))
		if err != nil {
			t.Fatal(err)
		}
		defer state.Close()
		p := program{binaryName, settings.at("/copy/capture-cni"), func(_ context.Context, path string) error {
			if filepath.Base(path) == binaryName {
				return nil // what is installed runs
			}
			return tried
		}, state}
		changed, err := p.install(t.Context(), bin)
		content, readErr := os.ReadFile(bin.Path() + "/" + binaryName)
		if string(content) != want || readErr != nil || changed != (tried == nil) || !errors.Is(err, tried) {
			t.Errorf("a copy that returns %v: %q is installed (%v), changed %v, %v", tried, content, readErr, changed, err)
		}
	}
}
