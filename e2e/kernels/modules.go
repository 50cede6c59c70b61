// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// wanted are the modules that packets and tests need, as directories or patterns of files.
var wanted = []string{"kernel/net", "kernel/lib", "kernel/crypto", "kernel/arch/*/crypto", "kernel/drivers/net/veth.ko*"}

// addModules copies an image's modules and their index; modules that a guest is without,
// as patterns of names, are only in the index, so that loading one of them fails.
func (a *archive) addModules(i Image, without []string) error {
	root := filepath.Join("/lib/modules", filepath.Base(i.Modules))
	indexes, err := filepath.Glob(filepath.Join(i.Modules, "modules.*"))
	if err != nil {
		return err
	}
	for _, index := range indexes {
		if err := a.copy(filepath.Join(root, filepath.Base(index)), index); err != nil {
			return err
		}
	}
	for _, pattern := range wanted {
		found, err := filepath.Glob(filepath.Join(i.Modules, pattern))
		if err != nil {
			return err
		}
		for _, path := range found {
			if err := a.addModulesBelow(i, path, root, without); err != nil {
				return err
			}
		}
	}
	return nil
}

func (a *archive) addModulesBelow(i Image, path, root string, without []string) error {
	return filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || slices.ContainsFunc(without, func(pattern string) bool { return matches(pattern, moduleName(path)) }) {
			return err
		}
		content, err := os.ReadFile(path)
		if err == nil {
			a.file(root+strings.TrimPrefix(path, i.Modules), 0o644, content)
		}
		return err
	})
}

func matches(pattern, name string) bool {
	matched, err := filepath.Match(pattern, name)
	return matched || err != nil
}

// moduleName is the name of a module in a file such as nft_ct.ko.xz.
func moduleName(path string) string {
	name, _, _ := strings.Cut(filepath.Base(path), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}
