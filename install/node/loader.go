// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/cri"
)

// loaderOf returns the settings by which the node's runtime chooses the files that it loads from the
// network directory.
func loaderOf(ctx context.Context, s Settings, runtime *cri.Client) conflist.Loader {
	loader := conflist.Loader{Most: 1, BinDirs: s.BinDirs}
	if runtime != nil {
		loader.Runtime, _ = runtime.Version(ctx) // unknown if the runtime does not answer
	}
	found, _ := cri.ReadCNISettings(ctx, s.Root, runtime)
	if found.MaxConfNum != nil {
		loader.Most = *found.MaxConfNum
	}
	loader.Network = found.Network
	isMissing := func(path string) bool { return unix.Access(path, unix.F_OK) != nil }
	if s.Root == "/" && len(found.BinDirs) > 0 && !slices.ContainsFunc(found.BinDirs, isMissing) {
		loader.SeesAll, loader.BinDirs = true, found.BinDirs
	}
	loader.BinDirs = slices.Clone(loader.BinDirs) // do not change the settings' slice
	for i, directory := range loader.BinDirs {
		loader.BinDirs[i] = s.At(directory)
	}
	return loader
}
