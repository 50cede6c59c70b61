// SPDX-License-Identifier: Apache-2.0

// Package kernels boots Linux as its users have it: kernels of Debian's packages, under
// qemu without hardware virtualisation, from an initramfs that holds the project's own
// tests.
package kernels

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/capture-cni/capture-cni/e2e/debian"
)

// Kernel is one that Debian maintains in a suite.
type Kernel struct {
	Release, Suite string
	Architecture   *Architecture
}

// All are the kernels that tests boot.
var All = []Kernel{
	{"5.10", "bullseye-security", AMD64},
	{"6.1", "bookworm-security", AMD64},
	{"6.12", "trixie-security", AMD64},
	{"6.1-arm64", "bookworm-security", ARM64}, // for make kernels alone
}

// Newest is that of Debian's next release.
var Newest = Kernel{"7", "forky", AMD64}

// Of returns the kernels of an architecture.
func Of(architecture *Architecture) []Kernel {
	return slices.DeleteFunc(slices.Clone(All), func(k Kernel) bool { return k.Architecture != architecture })
}

func (k Kernel) String() string { return "Linux " + k.Release }

// Image is an unpacked kernel package.
type Image struct {
	Package      string // name and version
	Kernel       string // path of the kernel
	Modules      string // directory of its modules, with modules.dep
	Architecture *Architecture
}

// find finds the parts of an unpacked package.
func find(root string, architecture *Architecture) (Image, error) {
	versions, err := debian.Versions(root)
	if err != nil {
		return Image{}, err
	}
	modules, modulesErr := single(filepath.Join(root, "lib", "modules", "*"))
	kernel, kernelErr := single(filepath.Join(root, "boot", "vmlinuz-*"))
	if kernelErr != nil { // Linux 7 of Debian's has it with its modules
		kernel, kernelErr = single(filepath.Join(modules, "vmlinuz"))
	}
	if err := errors.Join(kernelErr, modulesErr); err != nil {
		return Image{}, err
	}
	name := "linux-image-" + filepath.Base(modules)
	return Image{name + "_" + versions[name], kernel, modules, architecture}, nil
}

// single returns the only file that matches a pattern.
func single(pattern string) (string, error) {
	found, err := filepath.Glob(pattern)
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("%d files match %s, want one", len(found), pattern)
	}
	if err != nil {
		return "", err
	}
	return found[0], nil
}
