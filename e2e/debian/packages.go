// SPDX-License-Identifier: Apache-2.0

package debian

import (
	"crypto/sha256"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// packagesFile lists what was unpacked next to it: name, version and digest of each package.
const packagesFile = "packages"

func recordPackages(root string, archives []string) error {
	var lines strings.Builder
	for _, archive := range archives {
		content, err := os.ReadFile(archive)
		if err != nil {
			return err
		}
		name, version, err := parseArchive(filepath.Base(archive))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%s %s %x\n", name, version, sha256.Sum256(content))
	}
	return os.WriteFile(filepath.Join(root, packagesFile), []byte(lines.String()), 0o644)
}

// parseArchive reads apt's name of an archive: NAME_VERSION_ARCHITECTURE.deb, escaped as in a URL.
func parseArchive(base string) (name, version string, err error) {
	unescaped, err := url.PathUnescape(base)
	if err != nil {
		return "", "", err
	}
	fields := strings.Split(unescaped, "_")
	if len(fields) != 3 {
		return "", "", fmt.Errorf("the archive %s is not called NAME_VERSION_ARCHITECTURE.deb", base)
	}
	return fields[0], fields[1], nil
}

// Versions returns the version of each package in a directory that Unpack returned.
func Versions(root string) (map[string]string, error) {
	content, err := os.ReadFile(filepath.Join(root, packagesFile))
	if err != nil {
		return nil, err
	}
	versions := map[string]string{}
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		versions[fields[0]] = fields[1]
	}
	return versions, nil
}
