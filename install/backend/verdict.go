// SPDX-License-Identifier: Apache-2.0

// Package backend tests whether a node's kernel and programs support the backend, and keeps the result
// until the next boot. With the backend "auto", it also chooses the backend.
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

// Auto is the operator's choice to let the test choose: nftables or, if the kernel lacks a module for
// nftables, a variant of iptables that works. The plugin does not know Auto, because its entry names the
// chosen backend.
const Auto config.Backend = "auto"

// Verdict is the result of a test of a node. Its zero value means that the node was not tested since it
// booted.
type Verdict struct {
	Boot    string         `json:"boot"`    // the kernel's id of the boot
	Version string         `json:"version"` // version of capture-cni
	Asked   config.Backend `json:"asked"`
	Meshes  string         `json:"meshes"` // the meshes whose rules were tested

	Chosen   config.Backend `json:"chosen,omitempty"`   // "" if none works
	Reason   string         `json:"reason,omitempty"`   // why no backend works, or why Auto chose iptables
	NoTProxy string         `json:"noTProxy,omitempty"` // why pods with TPROXY can't start
	NoFence  string         `json:"noFence,omitempty"`  // why pods with a fence can't start
	NoIPv6   string         `json:"noIPv6,omitempty"`   // why pods with captured IPv6 can't start

	Choice config.Backend `json:"choice,omitempty"` // the first choice of this boot, for Auto
}

// DirectoryName is the name of the verdict's directory in the run directory. It is a directory of its
// own, because the container of the test can write to no other part of the run directory.
const DirectoryName = "backend"

const fileName = "verdict.json"

// Read returns this boot's verdict from the run directory, or the zero value if there is none.
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

// Write writes the verdict to the run directory.
func Write(runDir string, v Verdict) (err error) {
	directory, err := host.MakeDir(filepath.Join(runDir, DirectoryName), nil)
	if err != nil {
		return err
	}
	content, _ := json.Marshal(v) // a struct of strings can always be encoded
	return errors.Join(directory.Ensure(fileName, content), directory.Close())
}

// bootID returns an id that is different after each boot.
func bootID() (string, error) {
	content, err := host.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading which boot this is: %w", err)
	}
	return strings.TrimSpace(string(content)), nil
}

// Fault returns an error if the backend that the operator configured does not work, so that the agent
// writes no entry, except to restore a lost one. For a node that was not tested for this backend, it
// returns nil, except for Auto.
func (v Verdict) Fault(asked config.Backend) error {
	switch {
	case v.Asked == asked && v.Chosen == "":
		return errors.New(v.Reason)
	case v.Asked != asked && asked == Auto:
		return errors.New(`the backend is "auto", and this node was not tested for "auto" since it booted: ` +
			`run capture-cni-node backend, or delete the agent's pod`)
	}
	return nil
}

// Notes returns findings about kinds of meshed pods that this node can't capture with the tested
// backend, and one if Auto chose a variant of iptables. It returns none if the operator has configured
// another backend since.
func (v Verdict) Notes(asked config.Backend) (notes report.Findings) {
	if v.Asked != asked {
		return nil
	}
	if v.Asked == Auto && cmp.Or(v.Chosen, config.NFTables) != config.NFTables {
		notes = append(notes, report.Finding{Code: report.IPTablesChosen, Severity: report.Note, Reason: fmt.Sprintf(
			"auto chose the backend %s, so the guard is idle, and meshed pods with hostUsers: false can't start: %s",
			v.Chosen, cmp.Or(v.Reason, "an earlier test of this boot chose it"))})
	}
	for _, pods := range []struct {
		code        report.Code
		with, lacks string
	}{
		{report.NoTProxy, "interceptionMode TPROXY", v.NoTProxy},
		{report.NoFence, "a fence", v.NoFence},
		{report.NoIPv6, "captured IPv6", v.NoIPv6},
	} {
		if pods.lacks != "" {
			notes = append(notes, report.Finding{
				Code: pods.code, Severity: report.Note, Reason: fmt.Sprintf("meshed pods with %s can't start: %s", pods.with, pods.lacks),
			})
		}
	}
	return notes
}
