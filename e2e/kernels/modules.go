// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// wanted are the directories of the modules that packets and tests need.
var wanted = []string{"kernel/net", "kernel/lib", "kernel/crypto", "kernel/arch", "kernel/drivers/net"}

// addModules copies an image's modules and their index; modules that a guest is without
// are only in the index, so that loading one of them fails.
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
	for _, directory := range wanted {
		err := filepath.WalkDir(filepath.Join(i.Modules, directory), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || slices.Contains(without, moduleName(path)) {
				return err
			}
			content, err := os.ReadFile(path)
			if err == nil {
				a.file(root+strings.TrimPrefix(path, i.Modules), 0o644, content)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// moduleName is the name of a module in a file such as nft_ct.ko.xz.
func moduleName(path string) string {
	name, _, _ := strings.Cut(filepath.Base(path), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}
