// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io/fs"
	"os"
	"path/filepath"
)

// copyProject copies a project without its history. What was built is a link.
func copyProject(root, to string) error {
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		within, err := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case within == ".git" || within == "bin":
			if entry.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(to, within), 0o755)
		case !entry.Type().IsRegular():
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, within), content, 0o644)
	})
	if err != nil {
		return err
	}
	return os.Symlink(filepath.Join(root, "bin"), filepath.Join(to, "bin"))
}
