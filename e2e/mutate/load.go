// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// source is one package of the product, parsed and type-checked.
type source struct {
	path, dir string
	files     []sourceFile
	types     *types.Package
	info      *types.Info
	set       *token.FileSet
}

type sourceFile struct {
	name   string
	text   []byte
	syntax *ast.File
}

// name returns the package's path below the module.
func (s *source) name() string {
	_, name, _ := strings.Cut(s.path, "/capture-cni/capture-cni/")
	return name
}

// listed is what go list prints about a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
	DepOnly                 bool
}

// load returns the packages that match the patterns and have code.
func load(ctx context.Context, patterns []string) ([]*source, error) {
	fields := "-json=ImportPath,Dir,Export,GoFiles,DepOnly"
	command := exec.CommandContext(ctx, "go", append([]string{"list", "-export", "-deps", fields}, patterns...)...)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("listing packages: %w", err)
	}
	exports, chosen := map[string]string{}, []listed(nil)
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("reading the list of packages: %w", err)
		}
		exports[p.ImportPath] = p.Export
		if !p.DepOnly && len(p.GoFiles) > 0 {
			chosen = append(chosen, p)
		}
	}
	var sources []*source
	for _, p := range chosen {
		s, err := check(p, exports)
		if err != nil {
			return nil, fmt.Errorf("checking %s: %w", p.ImportPath, err)
		}
		sources = append(sources, s)
	}
	return sources, nil
}

// check parses a package and finds the types of its expressions; exports has the compiled
// form of each package that it imports.
func check(p listed, exports map[string]string) (*source, error) {
	s := &source{path: p.ImportPath, dir: p.Dir, set: token.NewFileSet()}
	s.info = &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	var syntax []*ast.File
	for _, name := range p.GoFiles {
		text, err := os.ReadFile(filepath.Join(p.Dir, name))
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(s.set, filepath.Join(p.Dir, name), text, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		s.files, syntax = append(s.files, sourceFile{filepath.Join(p.Dir, name), text, file}), append(syntax, file)
	}
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	config := types.Config{Importer: importer.ForCompiler(s.set, "gc", lookup)}
	var err error
	s.types, err = config.Check(p.ImportPath, s.set, syntax, s.info)
	return s, err
}
