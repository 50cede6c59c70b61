// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/capture-cni/capture-cni/deploy/build"
)

// archive is the programs of one platform in one file.
type archive struct {
	name                 string
	system, architecture string
	sources              []string // packages of the programs, from the project's root
}

var (
	onNodes = []string{"./plugin/capture-cni", "./plugin/capture-cni-lookup", "./install/capture-cni-node"}
	atDesks = []string{"./deploy/kubectl-capture_cni"}
)

var archives = []archive{
	{"capture-cni", "linux", "amd64", onNodes},
	{"capture-cni", "linux", "arm64", onNodes},
	{"kubectl-capture_cni", "linux", "amd64", atDesks},
	{"kubectl-capture_cni", "linux", "arm64", atDesks},
	{"kubectl-capture_cni", "darwin", "amd64", atDesks},
	{"kubectl-capture_cni", "darwin", "arm64", atDesks},
	{"kubectl-capture_cni", "windows", "amd64", atDesks},
}

// build returns the archive's file name and content.
func (a archive) build(ctx context.Context, version string) (string, []byte, error) {
	name := strings.Join([]string{a.name, version, a.system, a.architecture}, "_")
	files, err := a.files(ctx)
	if err != nil {
		return "", nil, fmt.Errorf("building %s: %w", name, err)
	}
	if a.system == "windows" {
		content, err := build.Zip(files)
		return name + ".zip", content, err
	}
	content, err := build.TarGzip(files)
	return name + ".tar.gz", content, err
}

func (a archive) files(ctx context.Context) ([]build.File, error) {
	var files []build.File
	var programs [][]byte
	for _, source := range a.sources {
		program, err := build.Program(ctx, a.system, a.architecture, source)
		if err != nil {
			return nil, err
		}
		name := path.Base(source)
		if a.system == "windows" {
			name += ".exe"
		}
		files = append(files, build.File{Name: name, Mode: 0o755, Content: program})
		programs = append(programs, program)
	}
	texts, err := build.Licences(ctx, programs...)
	if err != nil {
		return nil, err
	}
	return append(files, build.Texts("licenses", texts)...), nil
}
