// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// licence matches the names of files with a licence or a notice.
var licence = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-][a-z0-9.-]+)?$`)

// allLicences returns the licence texts and notices of what programs were built from:
// this project, Go, and each module, by names such as "golang.org/x/sys/LICENSE".
// A module without a licence is an error.
func allLicences(ctx context.Context, programs Files) (map[string][]byte, error) {
	directories, err := modules(ctx, programs)
	if err != nil {
		return nil, err
	}
	texts := map[string][]byte{}
	for module, directory := range directories {
		found, err := licences(os.DirFS(directory), strings.Contains(directory, "@"))
		if err != nil {
			return nil, fmt.Errorf("reading the licence of %s: %w", module, err)
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("%s in %s has no file with a licence", module, directory)
		}
		for name, text := range found {
			texts[path.Join(module, name)] = text
		}
	}
	return texts, nil
}

// modules returns the directories of the modules that programs consist of, and Go's own as
// "go".
func modules(ctx context.Context, programs Files) (map[string]string, error) {
	root, err := output(ctx, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, program := range programs {
		info, err := buildinfo.Read(bytes.NewReader(program.Content))
		if err != nil {
			return nil, fmt.Errorf("reading a program's modules: %w", err)
		}
		names[info.Main.Path] = true
		for _, module := range info.Deps {
			names[module.Path] = true
		}
	}
	listed, err := output(ctx, "go", slices.Concat([]string{"list", "-m", "-f", "{{.Path}} {{.Dir}}"}, slices.Collect(maps.Keys(names)))...)
	if err != nil {
		return nil, err
	}
	directories := map[string]string{"go": root}
	for line := range strings.Lines(listed) {
		module, directory, _ := strings.Cut(strings.TrimSpace(line), " ")
		directories[module] = directory
	}
	return directories, nil
}

// licences reads the files with licences in a module's directory and, in those from
// the module cache, the ones of code that a module took from elsewhere.
func licences(module fs.FS, cached bool) (map[string][]byte, error) {
	texts := map[string][]byte{}
	err := fs.WalkDir(module, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "testdata" || name != "." && !cached):
			return fs.SkipDir
		case entry.IsDir() || !licence.MatchString(entry.Name()) || filepath.Ext(name) == ".go":
			return nil
		}
		texts[name], err = fs.ReadFile(module, name)
		return err
	})
	return texts, err
}

func output(ctx context.Context, program string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, program, args...)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("running %s %s: %w", program, args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}
