// SPDX-License-Identifier: Apache-2.0

package build

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"testing"
	"testing/fstest"
)

// TestLicences reads the licences of a module and, from the module cache, of code that it
// took from elsewhere. A module that can't be read is an error: an image must not lack one.
func TestLicences(t *testing.T) {
	t.Parallel()
	text := func(content string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(content)} }
	module := fstest.MapFS{
		"LICENSE": text("own"), "main.go": text("package main"), "license.go": text("package main"),
		"vendored/LICENSE.txt": text("other"), "testdata/LICENSE": text("a test's"),
	}
	for cached, want := range map[bool][]string{false: {"LICENSE"}, true: {"LICENSE", "vendored/LICENSE.txt"}} {
		texts, err := licences(module, cached)
		if got := slices.Sorted(maps.Keys(texts)); err != nil || !slices.Equal(got, want) || string(texts["LICENSE"]) != "own" {
			t.Errorf("in the module cache %v: %q, %v; want %q", cached, got, err, want)
		}
	}
	if _, err := licences(os.DirFS(t.TempDir()+"/gone"), true); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a module without a directory: %v", err)
	}
}
