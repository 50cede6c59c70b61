// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"context"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// programs are those of this machine that tests execute in a guest.
var programs = []string{
	"nft", "ip", "modprobe", "sh", "sleep", "unshare", "nsenter", "mount", "chroot", "strace", "setpriv", "flock", "false",
	"cat", "cp", "ln", "readlink", "mkdir", "install", "chmod", "chown",
	"iptables", "ip6tables", "iptables-save", "ip6tables-save", "iptables-restore", "ip6tables-restore",
	"iptables-nft", "ip6tables-nft", "iptables-nft-save", "ip6tables-nft-save", "iptables-nft-restore", "ip6tables-nft-restore",
	"iptables-legacy", "ip6tables-legacy", "iptables-legacy-save", "ip6tables-legacy-save", "iptables-legacy-restore", "ip6tables-legacy-restore",
}

// databases are files that programs look names up in.
var databases = []string{"/etc/protocols", "/etc/services", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts", "/etc/hostname", "/etc/iproute2"}

// addPrograms copies programs to /usr/sbin, with all libraries that they load.
func (a *archive) addPrograms(ctx context.Context) error {
	libraries := map[string]bool{}
	extensions, err := filepath.Glob("/usr/lib/*/xtables/*.so")
	if err != nil {
		return err
	}
	for _, name := range programs {
		path, err := exec.LookPath(name)
		if err != nil {
			return err
		}
		if err := a.copy("/usr/sbin/"+name, path); err != nil {
			return err
		}
		extensions = append(extensions, path)
	}
	for _, path := range extensions {
		out, err := output(exec.CommandContext(ctx, "ldd", path))
		if err != nil {
			return err
		}
		for _, library := range regexp.MustCompile(`(/\S+) \(0x`).FindAllStringSubmatch(out, -1) {
			libraries[library[1]] = true
		}
		if strings.Contains(path, "/xtables/") {
			libraries[path] = true
		}
	}
	for _, library := range slices.Sorted(maps.Keys(libraries)) {
		if err := a.copy(library, library); err != nil {
			return err
		}
	}
	for _, path := range databases {
		if err := a.copy(path, path); err != nil {
			return err
		}
	}
	for _, directory := range []string{"/sbin", "/bin", "/usr/bin"} {
		a.link(directory, "/usr/sbin")
	}
	return nil
}
