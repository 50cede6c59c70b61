// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

const (
	keyring     = "/usr/share/keyrings/debian-archive-keyring.gpg"
	metaPackage = "linux-image-cloud-amd64"
)

// apt knows one suite, in a directory of its own: the machine's own lists stay as they
// are.
type apt struct{ dir string }

// ownState keeps the machine's settings of proxies, and none of its hooks.
const ownState = `Dir::Etc::sourcelist "DIR/sources.list";
Dir::Etc::sourceparts "-";
Dir::State "DIR";
Dir::State::status "/dev/null";
Dir::Cache "DIR/cache";
APT::Architecture "amd64";
APT::Sandbox::User "root";
APT::Update::Error-Mode "any";
Acquire::Retries "3";
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
`

func newApt(mirror, suite, dir string) (apt, error) {
	for _, directory := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, directory), 0o755); err != nil {
			return apt{}, err
		}
	}
	source := fmt.Sprintf("deb [signed-by=%s] %s %s main\n", keyring, mirror, suite)
	settings := strings.ReplaceAll(ownState, "DIR", dir)
	return apt{dir}, errors.Join(
		os.WriteFile(filepath.Join(dir, "sources.list"), []byte(source), 0o644),
		os.WriteFile(filepath.Join(dir, "apt.conf"), []byte(settings), 0o644))
}

// securityMirror is where this machine has Debian's security updates from.
func securityMirror(ctx context.Context) (string, error) {
	out, err := output(exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"))
	if err != nil {
		return "", err
	}
	mirror := regexp.MustCompile(`(?m)^(\S+) [a-z]+-security$`).FindStringSubmatch(out)
	if mirror == nil {
		return "", errors.New("apt has no source of Debian's security updates: add one to /etc/apt/sources.list.d")
	}
	return mirror[1], nil
}

// update reads the suite's index. A suite that the mirror answers it does not have is
// gone; a mirror that does not answer is an error.
func (a apt) update(ctx context.Context) error {
	_, err := a.run(ctx, "apt-get", "update")
	if err != nil && strings.Contains(err.Error(), "a Release file") {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return err
}

// kernelPackage returns the package that the newest meta package depends on.
func (a apt) kernelPackage(ctx context.Context) (string, error) {
	out, err := a.run(ctx, "apt-cache", "search", "--names-only", "^"+metaPackage+"$")
	if err != nil {
		return "", err
	}
	if out == "" {
		return "", fmt.Errorf("%w: its index lacks %s", ErrGone, metaPackage)
	}
	if out, err = a.run(ctx, "apt-cache", "show", "--no-all-versions", metaPackage); err != nil {
		return "", err
	}
	name := regexp.MustCompile(`(?m)^Depends: .*?(linux-image-\d\S*-cloud-amd64)`).FindStringSubmatch(out)
	if name == nil {
		return "", fmt.Errorf("%s depends on no kernel:\n%s", metaPackage, out)
	}
	return name[1], nil
}

func (a apt) run(ctx context.Context, program string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, program, append([]string{"--config-file", filepath.Join(a.dir, "apt.conf")}, args...)...)
	command.Dir = a.dir
	return output(command)
}
