// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/capture-cni/capture-cni/e2e/debian"
)

// ContainerdProfile is the one that containerd gives containers by default.
const ContainerdProfile = "cri-containerd.apparmor.d"

// Confinement says which profiles of AppArmor confine a node's programs. Where a program
// has no name of a profile, it runs without.
type Confinement struct {
	Name         string
	Profiles     string // that are loaded; one for the plugin names its path
	Agent, Guard string
	SameAgent    bool // the agent of the confinement before goes on
	Guarded      bool // the rules of the meshed pod are deleted, and a guard starts
}

// Confined is what came of an agent, two pods, one of them meshed, and a guard. Texts are
// errors, and empty where there was none.
type Confined struct {
	Agent, Guard       string   // labels that the kernel reports
	Files              []string // of ours, where the runtime reads
	AgentLog, GuardLog string
	Unmeshed, Add, Del string
	Answer, Repaired   string // to the application: "proxy", "direct" or an error
	Left, LeftAfterDel string // rules of ours that are listed
	Denials            []string
}

// Confine tries confinements one after the other.
func Confine(confinements []Confinement) (Run, error) {
	content, err := json.Marshal(confinements)
	return Run{Name: "confinements", Directory: "/", Command: []string{filepath.Join(programDirectory, "attempt"), "confined", string(content)}}, err
}

// ConfinedBy reads what a run of Confine printed.
func ConfinedBy(o Outcome) (results []Confined, err error) {
	for line := range strings.Lines(o.Output) {
		var result Confined
		if json.Unmarshal([]byte(line), &result) == nil {
			results = append(results, result)
		}
	}
	if o.Status != 0 {
		return nil, fmt.Errorf("status %d: %s", o.Status, o.Output)
	}
	return results, nil
}

// WithAppArmor adds the agent, Debian's parser of profiles and a program that loads
// containerd's. directory gets what it compiles, and kept the parser.
func (s Suite) WithAppArmor(ctx context.Context, directory, kept string) (Suite, error) {
	if err := build(ctx, AMD64, "install/capture-cni-node", "build", "-o", filepath.Join(directory, "capture-cni-node")); err != nil {
		return Suite{}, err
	}
	if err := build(ctx, AMD64, "e2e/parts/containerd/apparmor", "build", "-o", filepath.Join(directory, "load-default")); err != nil {
		return Suite{}, err
	}
	root, err := debian.Unpack(ctx, kept, debian.Request{Suite: "bookworm", Packages: []string{"apparmor"}, Without: []string{"debconf", "libc6"}})
	if err != nil {
		return Suite{}, err
	}
	a := newArchive()
	for to, from := range map[string]string{
		programDirectory:               directory,
		"/usr/sbin/apparmor_parser":    root + "/sbin/apparmor_parser",
		"/etc/apparmor":                root + "/etc/apparmor",
		"/etc/apparmor.d":              root + "/etc/apparmor.d",
		"/usr/share/apparmor-features": root + "/usr/share/apparmor-features",
	} {
		if err := a.copy(to, from); err != nil {
			return Suite{}, err
		}
	}
	return Suite{append(slices.Clip(s.content), a.bytes()...)}, nil
}
