// SPDX-License-Identifier: Apache-2.0

// Package backend tests whether a node's kernel supports the backend, once per boot, and
// chooses one where the operator leaves that to the node.
package backend

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/report"
)

// Auto is the operator's choice to take nftables and, where the kernel lacks a module of it,
// what works of iptables. The plugin does not know it: its entry names one backend.
const Auto config.Backend = "auto"

// Verdict is what a test of a node showed. Its zero value is that of a node without a test
// since it booted.
type Verdict struct {
	Boot    string         `json:"boot"`    // of the node, as the kernel names it
	Version string         `json:"version"` // of capture-cni, and so of its rules
	Asked   config.Backend `json:"asked"`

	Chosen   config.Backend `json:"chosen,omitempty"`   // "" if none works
	Reason   string         `json:"reason,omitempty"`   // why none works, or why it is not nftables
	NoTProxy string         `json:"noTProxy,omitempty"` // why pods with TPROXY can't start
	NoIPv6   string         `json:"noIPv6,omitempty"`   // why pods with IPv6 can't

	Choice config.Backend `json:"choice,omitempty"` // for Auto, the first one of this boot
}

// DirectoryName is the name of the verdict's directory in the run directory, which guard and
// test mount without what else is there.
const DirectoryName = "backend"

const fileName = "verdict.json"

// Read returns the verdict of this boot, in the run directory as this process sees it.
func Read(runDir string) (v Verdict, err error) {
	path := filepath.Join(runDir, DirectoryName, fileName)
	content, err := host.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Verdict{}, nil
	}
	if err != nil {
		return Verdict{}, fmt.Errorf("reading the test of the backend in %s: %w", path, err)
	}
	boot, err := bootID()
	if json.Unmarshal(content, &v) != nil || v.Boot != boot { // the next test replaces a damaged file
		v = Verdict{}
	}
	return v, err
}

// Write replaces the verdict.
func Write(runDir string, v Verdict) (err error) {
	directory, err := host.MakeDir(filepath.Join(runDir, DirectoryName))
	if err != nil {
		return err
	}
	content, _ := json.Marshal(v) // strings have no error
	return errors.Join(directory.Ensure(fileName, content), directory.Close())
}

// bootID returns what differs between two boots of a node.
func bootID() (string, error) {
	content, err := host.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading which boot this is: %w", err)
	}
	return strings.TrimSpace(string(content)), nil
}

// Fault returns why the plugin's entry can't be written for the backend that the operator
// asks for. Without a test it is nil, but for Auto.
func (v Verdict) Fault(asked config.Backend) error {
	switch {
	case v.Asked == asked && v.Chosen == "":
		return errors.New(v.Reason)
	case v.Asked != asked && asked == Auto:
		return errors.New(`the backend is "auto", and this node was not tested since it booted: ` +
			`run capture-cni-node backend, or delete the agent's pod`)
	}
	return nil
}

// Notes names the meshed pods that this node can't capture with the backend that was tested, if
// the operator still asks for that backend.
func (v Verdict) Notes(asked config.Backend) (notes report.Findings) {
	if v.Asked != asked {
		return nil
	}
	if v.Asked == Auto && cmp.Or(v.Chosen, config.NFTables) != config.NFTables {
		notes = append(notes, report.Finding{Code: report.IPTablesChosen, Severity: report.Note, Reason: fmt.Sprintf(
			"auto chose the backend %s, so the node has no guard, and meshed pods with hostUsers: false can't start: %s", v.Chosen, v.Reason)})
	}
	if v.NoTProxy != "" {
		notes = append(notes, report.Finding{
			Code: report.NoTProxy, Severity: report.Note, Reason: "meshed pods with interceptionMode TPROXY can't start: " + v.NoTProxy,
		})
	}
	if v.NoIPv6 != "" {
		notes = append(notes, report.Finding{
			Code: report.NoIPv6, Severity: report.Note, Reason: "meshed pods with IPv6 addresses can't start: " + v.NoIPv6,
		})
	}
	return notes
}
