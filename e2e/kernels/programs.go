// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// programs are those that tests execute in a guest.
var programs = []string{
	"nft", "ip", "modprobe", "sh", "sleep", "unshare", "nsenter", "mount", "chroot", "strace", "setpriv", "flock", "false",
	"cat", "cp", "ln", "readlink", "mkdir", "install", "chmod", "chown",
	"iptables", "ip6tables", "iptables-save", "ip6tables-save", "iptables-restore", "ip6tables-restore",
	"iptables-nft", "ip6tables-nft", "iptables-nft-save", "ip6tables-nft-save", "iptables-nft-restore", "ip6tables-nft-restore",
	"iptables-legacy", "ip6tables-legacy", "iptables-legacy-save", "ip6tables-legacy-save", "iptables-legacy-restore", "ip6tables-legacy-restore",
}

// databases are files that programs look names up in.
var databases = []string{"/etc/protocols", "/etc/services", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts", "/etc/hostname", "/etc/iproute2"}

// addPrograms copies programs below a root directory to /usr/sbin, with all libraries that
// they load.
func (a *archive) addPrograms(root string, architecture *Architecture) error {
	loaded, err := filepath.Glob(filepath.Join(root, "/usr/lib", architecture.Libraries, "xtables/*.so"))
	if err != nil {
		return err
	}
	for _, path := range loaded {
		if err := a.copy(filepath.Join("/", strings.TrimPrefix(path, root)), path); err != nil {
			return err
		}
	}
	for _, name := range programs {
		path, err := findProgram(root, name)
		if err != nil {
			return err
		}
		if err := a.copy("/usr/sbin/"+name, path); err != nil {
			return err
		}
		loaded = append(loaded, path)
	}
	if err := a.copy(architecture.Loader, filepath.Join(root, architecture.Loader)); err != nil {
		return err
	}
	for _, path := range loaded {
		if err := a.addLibraries(root, path, architecture); err != nil {
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

// findProgram finds a program. In unpacked packages, only iptables-nft has the name of
// iptables' backend.
func findProgram(root, name string) (string, error) {
	for _, base := range []string{name, strings.Replace(name, "tables", "tables-nft", 1)} {
		for _, directory := range []string{"usr/sbin", "usr/bin", "sbin", "bin"} {
			path := filepath.Join(root, directory, base)
			if target, err := os.Readlink(path); err == nil && filepath.IsAbs(target) {
				path = filepath.Join(root, target)
			}
			if _, err := os.Stat(path); err == nil {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("there is no %s below %s", name, root)
}

// addLibraries copies the libraries that a program or library loads, and what those load.
func (a *archive) addLibraries(root, path string, architecture *Architecture) error {
	object, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer object.Close()
	names, err := object.ImportedLibraries()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := a.addLibrary(root, name, architecture); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

func (a *archive) addLibrary(root, name string, architecture *Architecture) error {
	for _, directory := range []string{"/lib", "/usr/lib"} {
		to := filepath.Join(directory, architecture.Libraries, name)
		if a.has[to] {
			return nil
		}
		from := filepath.Join(root, to)
		if _, err := os.Stat(from); err != nil {
			continue
		}
		if err := a.copy(to, from); err != nil {
			return err
		}
		return a.addLibraries(root, from, architecture)
	}
	return fmt.Errorf("there is no %s below %s", name, root)
}
