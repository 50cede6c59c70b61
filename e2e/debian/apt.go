// SPDX-License-Identifier: Apache-2.0

package debian

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// keyring is of Debian's package debian-archive-keyring.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// missing has apt's sentences about a package that no suite has.
var missing = []string{"Unable to locate package", "has no installation candidate", "No packages found"}

// apt is an apt with lists, status and archives of its own.
type apt struct{ directory, mirror, architecture string }

// fetch returns the archives of the packages and of what they depend on. apt compares them
// with the index that Debian signed.
func (a apt) fetch(ctx context.Context, r Request) (archives []string, err error) {
	if err := a.prepare(r); err != nil {
		return nil, err
	}
	if out, err := a.run(ctx, "apt-get", "update"); err != nil {
		return nil, failure(err, out, "does not have a Release file")
	}
	packages := slices.Clone(r.Packages)
	for _, meta := range r.Meta {
		dependencies, err := a.dependencies(ctx, meta)
		if err != nil {
			return nil, err
		}
		packages = append(packages, dependencies...)
	}
	install := append([]string{"install", "--yes", "--no-install-recommends", "--download-only", "--target-release", r.Suite}, packages...)
	if out, err := a.run(ctx, "apt-get", install...); err != nil {
		return nil, failure(err, out, missing...)
	}
	return filepath.Glob(filepath.Join(a.directory, "archives", "*.deb"))
}

// dependencies returns the packages that the newest version of a package depends on.
func (a apt) dependencies(ctx context.Context, name string) (names []string, err error) {
	out, err := a.run(ctx, "apt-cache", "depends", name)
	if err != nil {
		return nil, failure(err, out, missing...)
	}
	for _, line := range regexp.MustCompile(`(?m)^ +Depends: (\S+)$`).FindAllStringSubmatch(out, -1) {
		names = append(names, line[1])
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s depends on no package: %s", name, out)
	}
	return names, nil
}

func (a apt) prepare(r Request) error {
	for _, name := range []string{"lists/partial", "archives/partial"} {
		if err := os.MkdirAll(filepath.Join(a.directory, name), 0o755); err != nil {
			return err
		}
	}
	files := map[string]string{"sources": sources(a.mirror, r.Suite), "status": status(r.Without)}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(a.directory, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// sources returns the lines for a suite; backports need the suite that they are made for.
func sources(mirror, suite string) string {
	base, isBackports := strings.CutSuffix(suite, "-backports")
	lines := fmt.Sprintf("deb [signed-by=%s] %s %s main\n", keyring, mirror, base)
	if isBackports {
		lines += fmt.Sprintf("deb [signed-by=%s] %s %s main\n", keyring, mirror, suite)
	}
	return lines
}

// status returns the database of a machine on which only these packages are installed.
func status(installed []string) string {
	var b strings.Builder
	for _, name := range installed {
		fmt.Fprintf(&b, "Package: %s\nStatus: install ok installed\nArchitecture: all\nMulti-Arch: foreign\nVersion: 9999\n\n", name)
	}
	return b.String()
}

// mirror returns the machine's mirror of Debian that has a suite.
func mirror(ctx context.Context, suite string) string {
	archive := "debian"
	if strings.HasSuffix(suite, "-security") {
		archive = "debian-security"
	}
	out, _ := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages").Output()
	for site := range strings.FieldsSeq(string(out)) {
		if path.Base(site) == archive {
			return site
		}
	}
	return "http://deb.debian.org/" + archive
}

func (a apt) run(ctx context.Context, program string, args ...string) (out string, err error) {
	options := map[string]string{
		"Dir::State": a.directory, "Dir::State::lists": "lists", "Dir::State::status": filepath.Join(a.directory, "status"),
		"Dir::Cache": a.directory, "Dir::Cache::archives": "archives",
		"Dir::Etc::sourcelist": filepath.Join(a.directory, "sources"), "Dir::Etc::sourceparts": "/dev/null",
		"Dir::Etc::preferences": "/dev/null", "Dir::Etc::preferencesparts": "/dev/null",
		"APT::Sandbox::User":      "root", // _apt can't write below a temporary directory
		"APT::Update::Error-Mode": "any",  // an index that can't be fetched is an error
		"Acquire::Languages":      "none", "Acquire::Retries": "3",
		"Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
	}
	if a.architecture != "" {
		options["APT::Architecture"], options["APT::Architectures"] = a.architecture, a.architecture
	}
	for name, value := range options {
		args = append(args, "-o", name+"="+value)
	}
	command := exec.CommandContext(ctx, program, args...)
	command.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	text, err := command.CombinedOutput()
	return string(text), err
}

// failure returns the error of a program of apt; it is ErrGone if the program says one of the sentences.
func failure(err error, out string, gone ...string) error {
	for _, sentence := range gone {
		if strings.Contains(out, sentence) {
			err = ErrGone
		}
	}
	return fmt.Errorf("%w: %s", err, strings.TrimSpace(out))
}
