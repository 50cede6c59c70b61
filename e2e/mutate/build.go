// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed support.go.txt
var support string

// build compiles a package's tests in place of whose files the compiler reads the
// instrumented ones.
func build(ctx context.Context, s *source, in instrumented, scratch, program string) error {
	replace := map[string]string{}
	in.files[filepath.Join(s.dir, "mutate_support.go")] = fmt.Appendf(nil, support, s.types.Name())
	for name, text := range in.files {
		replace[name] = filepath.Join(scratch, filepath.Base(name))
		if err := os.WriteFile(replace[name], text, 0o600); err != nil {
			return err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	file := filepath.Join(scratch, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		return err
	}
	command := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay="+file, "-o", program, ".")
	command.Dir = s.dir
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("compiling the mutants: %w\n%s", err, out)
	}
	return nil
}
