// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"time"
)

// Digest covers all that a guest's results depend on: its kernel, programs and job.
func (g Guest) Digest() (string, error) {
	content, err := g.initramfs()
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	hash.Write([]byte(g.Image.Package + "\x00" + g.Append + "\x00" + clock + "\x00"))
	hash.Write(content)
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// Passes are the guests on which all tests of a package passed, the last one for each
// kernel and package.
type Passes struct{ Directory string }

// Last returns when all tests of a package passed on a kernel, if they did so with this
// digest.
func (p Passes) Last(k Kernel, name, digest string) (when time.Time, passed bool) {
	content, err := os.ReadFile(p.path(k, name))
	if err != nil || string(content) != digest {
		return time.Time{}, false
	}
	info, err := os.Stat(p.path(k, name))
	if err != nil {
		return time.Time{}, false
	}
	return info.ModTime(), true
}

// Record keeps that all tests of a package passed.
func (p Passes) Record(k Kernel, name, digest string) error {
	return os.WriteFile(p.path(k, name), []byte(digest), 0o644)
}

func (p Passes) path(k Kernel, name string) string {
	return filepath.Join(p.Directory, k.Release+"-"+filepath.Base(name)+".passed")
}
