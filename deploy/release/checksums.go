// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const sumsFile = "SHA256SUMS"

// checksums returns the SHA-256 checksums of all files in a directory except sumsFile, in the format
// that sha256sum --check reads.
func checksums(directory string) ([]byte, error) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return nil, err
	}
	var sums strings.Builder
	for _, entry := range entries {
		if entry.Name() == sumsFile {
			continue
		}
		content, err := os.ReadFile(filepath.Join(directory, entry.Name()))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), entry.Name())
	}
	return []byte(sums.String()), nil
}
