// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path"
	"strings"

	"github.com/capture-cni/capture-cni/deploy/build"
)

// archive describes a file with the programs for one platform.
type archive struct {
	name                 string
	system, architecture string
	sources              []string // packages of the programs, below the project's root
	scripts              []string // files to add unchanged
}

var (
	onNodes = []string{"./plugin/capture-cni", "./plugin/capture-cni-lookup", "./install/capture-cni-node"}
	atDesks = []string{"./deploy/kubectl-capture_cni"}
	shells  = []string{"deploy/kubectl-capture_cni/kubectl_complete-capture_cni"}
)

var archives = []archive{
	{"capture-cni", "linux", "amd64", onNodes, nil},
	{"capture-cni", "linux", "arm64", onNodes, nil},
	{"kubectl-capture_cni", "linux", "amd64", atDesks, shells},
	{"kubectl-capture_cni", "linux", "arm64", atDesks, shells},
	{"kubectl-capture_cni", "darwin", "amd64", atDesks, shells},
	{"kubectl-capture_cni", "darwin", "arm64", atDesks, shells},
	{"kubectl-capture_cni", "windows", "amd64", atDesks, nil},
}

// programs maps the programs' file names in the archive to their packages.
func (a archive) programs() map[string]string {
	suffix := ""
	if a.system == "windows" {
		suffix = ".exe"
	}
	sources := map[string]string{}
	for _, source := range a.sources {
		sources[path.Base(source)+suffix] = source
	}
	return sources
}

// build returns the files of the archive: programs, licences and scripts.
func (a archive) build(ctx context.Context, version string) (build.Files, error) {
	files, err := build.Programs(ctx, version, a.system, a.architecture, a.programs())
	if err != nil {
		return nil, err
	}
	for _, script := range a.scripts {
		content, err := os.ReadFile(script)
		if err != nil {
			return nil, err
		}
		files[path.Base(script)] = build.File{Mode: 0o755, Content: content}
	}
	return files, nil
}

// pack returns the name and the content of the archive: zip for Windows, and otherwise tar.gz.
func (a archive) pack(version string, files build.Files) (name string, content []byte, err error) {
	name = strings.Join([]string{a.name, version, a.system, a.architecture}, "_")
	if a.system == "windows" {
		content, err = files.Zip()
		return name + ".zip", content, err
	}
	content, err = files.TarGzip()
	return name + ".tar.gz", content, err
}
