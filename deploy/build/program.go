// SPDX-License-Identifier: Apache-2.0

// Package build builds the programs of images and releases. With the same version of Go, equal
// sources of one commit produce equal bytes.
package build

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
)

// Licenses is the name of the directory for licence texts in an archive. Container tools expect this
// name.
const Licenses = "licenses"

// Programs builds Go programs for an operating system and an architecture. sources maps the programs'
// paths in an archive to their packages. The result also contains the licences of all code in the
// programs. With the same version of Go, equal sources of one commit produce equal programs.
func Programs(ctx context.Context, version, system, architecture string, sources map[string]string) (Files, error) {
	environment := append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-tags=v"+version, "GOOS="+system, "GOARCH="+architecture)
	files := Files{}
	for name, source := range sources {
		content, err := program(ctx, environment, source)
		if err != nil {
			return nil, fmt.Errorf("building %s for %s/%s: %w", source, system, architecture, err)
		}
		files[name] = File{0o755, content}
	}
	texts, err := allLicences(ctx, environment, slices.Sorted(maps.Values(sources)))
	if err != nil {
		return nil, err
	}
	for name, text := range texts {
		files[path.Join(Licenses, name)] = File{0o644, text}
	}
	return files, nil
}

func program(ctx context.Context, environment []string, source string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "build-")
	if err != nil {
		return nil, fmt.Errorf("creating a temporary directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out := filepath.Join(dir, "program")
	checkout := exec.CommandContext(ctx, "git", "rev-parse", "--verify", "HEAD").Run() == nil // outside a checkout, Go refuses -buildvcs=true
	command := exec.CommandContext(ctx, "go", "build", "-trimpath",
		"-buildvcs="+strconv.FormatBool(checkout), "-ldflags", "-s -w -buildid=", "-o", out, source)
	command.Env, command.Stderr = environment, os.Stderr
	if err := command.Run(); err != nil {
		return nil, err
	}
	return os.ReadFile(out)
}
