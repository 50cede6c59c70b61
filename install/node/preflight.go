// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/plugin/podnet"
)

// Problem is something that would go wrong, and what to do about it.
type Problem struct {
	What    string `json:"what"`
	Do      string `json:"do"`
	Serious bool   `json:"serious"` // pods would start uncaptured, or not at all
}

// Problems are all that were found.
type Problems []Problem

// Serious tells whether one of them is.
func (p Problems) Serious() bool {
	return slices.ContainsFunc(p, func(problem Problem) bool { return problem.Serious })
}

// String is one problem a line.
func (p Problems) String() string {
	if len(p) == 0 {
		return "nothing stands in the way"
	}
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.What + ": " + problem.Do
		if !problem.Serious {
			lines[i] = "note: " + lines[i]
		}
	}
	return strings.Join(lines, "\n")
}

// Preflight looks for what would go wrong on a node, and writes nothing.
func Preflight(ctx context.Context, settings Settings, runtime *cri.Client) Problems {
	p := &preflight{settings: settings, found: Problems{}}
	p.runtimeFolders(ctx, runtime)
	p.writable()
	p.primary()
	p.kernel(ctx)
	p.selinux()
	return p.found
}

type preflight struct {
	settings Settings
	found    Problems
}

func (p *preflight) serious(do, what string, args ...any) {
	p.found = append(p.found, Problem{fmt.Sprintf(what, args...), do, true})
}

func (p *preflight) note(do, what string, args ...any) {
	p.found = append(p.found, Problem{fmt.Sprintf(what, args...), do, false})
}

// runtimeFolders compares our folders with where the runtime really looks.
func (p *preflight) runtimeFolders(ctx context.Context, runtime *cri.Client) {
	looks, source := whereItLooks(ctx, p.settings, runtime)
	if source == "" {
		p.note("make sure that --net-dir and --bin-dir are the runtime's", "no configuration of containerd or CRI-O was found, nor a CRI socket")
		return
	}
	if looks.confDir != "" && looks.confDir != p.settings.NetDir && p.settings.Mode != Multus {
		p.serious("use --net-dir "+looks.confDir, "%s says that network configurations are looked for in %s, not in %s", source, looks.confDir, p.settings.NetDir)
	}
	if len(looks.binDirs) > 0 && !slices.ContainsFunc(p.settings.BinDirs, func(dir string) bool { return slices.Contains(looks.binDirs, dir) }) {
		p.serious("use --bin-dir "+strings.Join(looks.binDirs, ","), "%s says that plugins are looked for in %q, not in %q", source, looks.binDirs, p.settings.BinDirs)
	}
	if err := looks.refuseBeside(p.settings.Mode, source); err != nil {
		p.serious("set it to 1, or use another mode", "%v", err)
	}
}

// writable asks the kernel; nothing is created to find out.
func (p *preflight) writable() {
	for _, folder := range slices.Concat([]string{p.settings.NetDir}, p.settings.BinDirs) {
		err := unix.Access(p.settings.at(folder), unix.W_OK|unix.X_OK)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			p.serious("mount it, or name the right folder", "%s is not there", folder)
		case err != nil:
			p.serious("mount it writable; on a read-only image, use the folder that the platform's documents name", "%s can't be written to (%v)", folder, err)
		}
	}
}

func (p *preflight) primary() {
	net, err := host.OpenDir(p.settings.at(p.settings.NetDir))
	if err != nil {
		return // said already
	}
	defer net.Close()
	found, err := findPrimary(net)
	if isWaiting(err) {
		p.note("the agent will wait for it", "%v", err)
		return
	}
	if err != nil {
		p.serious("ask its owner", "%v", err)
		return
	}
	for _, plugin := range found.list.Plugins {
		switch {
		case plugin.OtherMesh() && p.settings.Mode == Owned:
			p.note("uninstall it then: a list of our own leaves it out", "%s has the entry of another mesh, %s", found.file, plugin.Type)
		case plugin.OtherMesh():
			p.serious("uninstall it, or use --mode owned, which leaves it out: a pod can be captured once", "%s has the entry of another mesh, %s", found.file, plugin.Type)
		}
		if strings.HasPrefix(plugin.Type, "multus") && p.settings.Mode != Multus {
			p.note("consider --mode multus; Multus hands no annotations over, so that every pod costs an API read", "%s is Multus'", found.file)
		}
	}
	if found.list.LoadOnlyInlinedPlugins && p.settings.Mode == DropIn {
		p.serious("use --mode insert", "%s has loadOnlyInlinedPlugins: no drop-in is loaded", found.file)
	}
}

// kernel applies every kind of rule in a namespace of its own.
func (p *preflight) kernel(ctx context.Context) {
	asked := p.settings.Entry.Conf.Backend
	if os.Geteuid() != 0 {
		p.note("run it as root", "whether the kernel can hold the rules was not tried")
		return
	}
	err := podnet.Probe(ctx, asked)
	switch {
	case err == nil:
		return
	case errors.Is(err, unix.EPERM):
		p.note("run it on the node, as root", "whether the kernel can hold the rules was not tried (%v)", err)
		return
	}
	for _, other := range []config.Backend{config.NFTables, config.IPTablesNFT, config.IPTablesLegacy} {
		if other != asked && podnet.Probe(ctx, other) == nil {
			p.serious(fmt.Sprintf(`put {"backend": %q} into --netconf`, other), "backend %s does not work here (%v)", asked, err)
			return
		}
	}
	p.serious("load the kernel's netfilter modules", "no backend works here; %s says: %v", asked, err)
}

func (p *preflight) selinux() {
	if enforcing, err := os.ReadFile(p.settings.at("/sys/fs/selinux/enforce")); err == nil && strings.TrimSpace(string(enforcing)) == "1" {
		p.note("the agent needs a type that may write to the node's folders (spc_t); labels of files are kept", "SELinux is enforcing")
	}
}
