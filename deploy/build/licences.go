// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// licence matches the names of files that contain a licence, a notice or a grant of patents.
var licence = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-][a-z0-9.-]+)?$`)

// allLicences returns the licence texts and notices of this project, of Go, and of all modules in
// programs, by names such as "golang.org/x/sys/LICENSE". If a module has no licence, it returns an
// error.
func allLicences(ctx context.Context, environment, packages []string) (map[string][]byte, error) {
	const form = `{{with .Module}}{{.Path}} {{.Dir}}{{end}}{{if eq .ImportPath "runtime"}}go {{.Root}}{{end}}`
	command := exec.CommandContext(ctx, "go", slices.Concat([]string{"list", "-deps", "-f", form}, packages)...)
	command.Env, command.Stderr = environment, os.Stderr
	listed, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the modules of %q: %w", packages, err)
	}
	directories := map[string]string{}
	for line := range strings.Lines(string(listed)) {
		if module, directory, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			directories[module] = directory
		}
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

// licences reads the licence files in a module's directory. In a directory of the module cache, it also
// reads those of code that the module copied from other projects.
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
