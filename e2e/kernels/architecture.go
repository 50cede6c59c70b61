// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"context"
	"runtime"
	"strings"

	"github.com/capture-cni/capture-cni/e2e/debian"
)

// Architecture is one of processors, and how qemu emulates it.
type Architecture struct {
	Name             string   // Go's and Debian's
	Package          string   // depends on Debian's newest kernel
	Emulator         []string // qemu, with a machine of two serial lines
	Console, Results string   // devices of these lines: the kernel's, and the guest's
	Libraries        string   // directory of libraries, below /lib and /usr/lib
	Loader           string   // of libraries
}

// AMD64 and ARM64 are those that the image is for.
var (
	AMD64 = &Architecture{
		"amd64", "linux-image-cloud-amd64",
		[]string{"qemu-system-x86_64", "-cpu", "max", "-serial", "chardev:console", "-serial", "chardev:results"},
		"ttyS0", "/dev/ttyS1", "x86_64-linux-gnu", "/lib64/ld-linux-x86-64.so.2",
	}
	// A cortex-a57 has no pointer authentication, which takes qemu long to emulate.
	ARM64 = &Architecture{
		"arm64", "linux-image-cloud-arm64",
		[]string{"qemu-system-aarch64", "-machine", "virt", "-cpu", "cortex-a57", "-serial", "chardev:console", "-device", "pci-serial,chardev=results"},
		"ttyAMA0", "/dev/ttyS0", "aarch64-linux-gnu", "/lib/ld-linux-aarch64.so.1",
	}
)

// packages have the programs that tests execute.
var packages = []string{"nftables", "iptables", "iproute2", "kmod", "dash", "util-linux", "mount", "strace", "coreutils"}

// root is the directory that has an architecture's programs: this machine's own, or one
// into which a suite's packages are unpacked.
func (a *Architecture) root(ctx context.Context, suite, kept string) (string, error) {
	if a.Name == runtime.GOARCH {
		return "/", nil
	}
	return debian.Unpack(ctx, kept, debian.Request{Suite: strings.TrimSuffix(suite, "-security"), Architecture: a.Name, Packages: packages})
}
