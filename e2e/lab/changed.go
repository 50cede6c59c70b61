// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// BuildChanged builds a program from the project's sources, in which it replaces the content of some
// files. The keys of files are paths, also of files that do not exist.
func BuildChanged(ctx context.Context, program, source string, files map[string][]byte) (err error) {
	dir, err := os.MkdirTemp("", "changed-")
	if err != nil {
		return fmt.Errorf("building with changes: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	replaced, err := replacedAlready()
	for name, content := range files {
		replaced[name] = filepath.Join(dir, strconv.Itoa(len(replaced))+filepath.Base(name))
		err = errors.Join(err, os.WriteFile(replaced[name], content, 0o600))
	}
	encoded, encodeErr := json.Marshal(map[string]any{"Replace": replaced})
	overlay := filepath.Join(dir, "overlay.json")
	if err := errors.Join(err, encodeErr, os.WriteFile(overlay, encoded, 0o600)); err != nil {
		return fmt.Errorf("building with changes: %w", err)
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-overlay", overlay, "-o", program, source)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s with changes: %w: %s", source, err, out)
	}
	return nil
}

// replacedAlready returns the files that an overlay in GOFLAGS replaces, for example the overlay of a
// mutant. The overlay of BuildChanged must contain them, because go build uses only one.
func replacedAlready() (map[string]string, error) {
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for flag := range strings.FieldsSeq(os.Getenv("GOFLAGS")) {
		file, isOverlay := strings.CutPrefix(flag, "-overlay=")
		if !isOverlay {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return overlay.Replace, err
		}
		return overlay.Replace, json.Unmarshal(content, &overlay)
	}
	return overlay.Replace, nil
}
