// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"

	"github.com/capture-cni/capture-cni/deploy/build"
)

// sbom lists the programs of a release, and the modules in each of them.
type sbom struct {
	components   []cyclonedx.Component
	dependencies []cyclonedx.Dependency
}

func (s *sbom) add(a archive, version string, files build.Files) error {
	for _, name := range slices.Sorted(maps.Keys(a.programs())) {
		info, err := buildinfo.Read(bytes.NewReader(files[name].Content))
		if err != nil {
			return fmt.Errorf("reading the modules of %s: %w", name, err)
		}
		reference := path.Join(a.system, a.architecture, name)
		s.components = append(s.components, cyclonedx.Component{
			BOMRef: reference, Type: cyclonedx.ComponentTypeApplication, Name: name, Version: version,
			Hashes: &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: fmt.Sprintf("%x", sha256.Sum256(files[name].Content))}},
		})
		modules := []string{s.module("stdlib", strings.TrimPrefix(info.GoVersion, "go"))}
		for _, module := range info.Deps {
			modules = append(modules, s.module(module.Path, module.Version))
		}
		s.dependencies = append(s.dependencies, cyclonedx.Dependency{Ref: reference, Dependencies: &modules})
	}
	return nil
}

// module adds a module, unless it is already listed, and returns its package URL, by which databases of
// vulnerabilities identify modules.
func (s *sbom) module(name, version string) string {
	url := "pkg:golang/" + name + "@" + version
	if !slices.ContainsFunc(s.components, func(c cyclonedx.Component) bool { return c.BOMRef == url }) {
		s.components = append(s.components, cyclonedx.Component{
			BOMRef:     url,
			Type:       cyclonedx.ComponentTypeLibrary,
			Name:       name,
			Version:    version,
			PackageURL: url,
		})
	}
	return url
}

// encode returns the list as CycloneDX JSON. It contains neither a time nor a random number, so that
// equal lists are equal files.
func (s *sbom) encode(version string) ([]byte, error) {
	document := cyclonedx.NewBOM()
	document.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{
		BOMRef:     "capture-cni",
		Type:       cyclonedx.ComponentTypeApplication,
		Name:       "capture-cni",
		Version:    version,
		PackageURL: "pkg:golang/github.com/capture-cni/capture-cni@v" + version,
	}}
	document.Components, document.Dependencies = &s.components, &s.dependencies
	var out bytes.Buffer
	err := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(document, cyclonedx.SpecVersion1_6)
	return out.Bytes(), err
}
