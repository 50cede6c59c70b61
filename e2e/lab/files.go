// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Case is a pod whose expected rules are in golden files of plugin/capture.
type Case struct {
	Pod       *corev1.Pod
	Settings  config.Settings
	Addresses []netip.Addr
}

// ReadCase reads a Case from a directory: pod.yaml and, if they exist, settings.json, which contains
// keys of the plugin's entry, and addresses.
func ReadCase(t testing.TB, directory string) Case {
	t.Helper()
	read := Case{Pod: &corev1.Pod{}}
	content, err := os.ReadFile(filepath.Join(directory, "pod.yaml"))
	if err == nil {
		err = yaml.UnmarshalStrict(content, read.Pod)
	}
	Check(t, err)
	input, err := config.Read([]byte(optional(t, filepath.Join(directory, "settings.json"), "{}")))
	Check(t, err)
	conf, warnings, err := input.NetConf()
	if err != nil || len(warnings) > 0 {
		t.Fatal(warnings, err)
	}
	read.Settings = conf.Capture
	for _, text := range strings.Fields(optional(t, filepath.Join(directory, "addresses"), "10.1.2.3")) {
		read.Addresses = append(read.Addresses, netip.MustParseAddr(text))
	}
	return read
}

// Rules returns the rules for the pod.
func (c Case) Rules(t testing.TB) capture.Ruleset {
	t.Helper()
	decision, err := Decide(c.Pod, c.Settings, c.Addresses...)
	Check(t, err)
	return capture.Rules(decision.Intent)
}

func optional(t testing.TB, path, byDefault string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return byDefault
	}
	Check(t, err)
	return string(content)
}

// ExpectGolden compares a text with a golden file. With update, it first writes the text to the file.
func ExpectGolden(t testing.TB, update bool, path, got string) {
	t.Helper()
	if update {
		Check(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	Check(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s changed (-golden +now); run make golden if this is intended:\n%s", path, diff)
	}
}

// FileNames returns the sorted names of the files in a directory.
func FileNames(t testing.TB, directory string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(directory)
	Check(t, err)
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}
