// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"debug/buildinfo"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestFIPS builds a program as the guide of the installation says: it has the named version
// of Go's cryptographic module, whose mode is on without a variable at run time, and runs.
func TestFIPS(t *testing.T) {
	lab.RequireTime(t)
	t.Chdir("../..")
	t.Setenv("GOFIPS140", "v1.0.0")
	files, err := Programs(t.Context(), "1.2.3", runtime.GOOS, runtime.GOARCH, map[string]string{"capture-cni": "./plugin/capture-cni"})
	if err != nil {
		t.Fatal(err)
	}
	content := files["capture-cni"].Content
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"GOFIPS140=v1.0.0", "DefaultGODEBUG=fips140=on"} {
		if !strings.Contains(info.String(), want) {
			t.Errorf("the program was built without %s:\n%s", want, info)
		}
	}
	program := filepath.Join(t.TempDir(), "capture-cni")
	if err := lab.WriteProgram(program, content); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), program, "--version").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
