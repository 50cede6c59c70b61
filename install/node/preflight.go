// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/backend"
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/report"
)

// Problem is what would fail on the node, and what to do about it.
type Problem struct {
	What    string `json:"what"`
	Do      string `json:"do"`
	Serious bool   `json:"serious"` // pods would start uncaptured, or not at all
}

// Problems are those that Preflight found.
type Problems []Problem

// Serious reports whether one of them is serious.
func (p Problems) Serious() bool {
	return slices.ContainsFunc(p, func(problem Problem) bool { return problem.Serious })
}

// String returns one problem a line.
func (p Problems) String() string {
	if len(p) == 0 {
		return "no problems found"
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

// Check returns what would fail on a node. It writes nothing.
func Check(ctx context.Context, settings Settings, runtime *cri.Client) Problems {
	p := preflight{settings: settings, found: inAgent(ctx, settings, runtime)}
	p.kernel(ctx)
	return p.found
}

// inAgent is Check without a test of the kernel, for which the agent has neither the
// capabilities nor iptables.
func inAgent(ctx context.Context, settings Settings, runtime *cri.Client) Problems {
	p := preflight{settings: settings, label: host.OwnLabel(), found: Problems{}}
	links, _ := net.Interfaces() // of this network namespace, which is the node's
	for _, link := range links {
		p.links = append(p.links, link.Name)
	}
	loader := loaderOf(ctx, settings, runtime)
	p.directories(ctx, runtime, loader.Runtime)
	p.writable()
	if p.settings.Mode == report.MultusChain {
		p.chain()
	}
	if net, err := host.OpenDir(p.settings.At(p.settings.NetDir)); err == nil { // else writable has reported it
		p.lists(conflist.Net{Dir: net, Loader: loader})
		p.exclusive(net)
		_ = net.Close()
	}
	p.modes()
	p.socketBalancing()
	if enforcing, err := os.ReadFile(p.settings.At("/sys/fs/selinux/enforce")); err == nil && strings.TrimSpace(string(enforcing)) == "1" {
		p.note("run the agent with a type that may write to the node's directories (chart: seLinuxOptions.type=spc_t)", "SELinux is enforcing")
	}
	return p.found
}

// preflight collects what is found.
type preflight struct {
	settings Settings
	label    string   // of this process, by the node's security module
	links    []string // network interfaces of the node
	found    Problems
}

func (p *preflight) serious(do, what string, args ...any) { p.add(true, do, what, args...) }

func (p *preflight) note(do, what string, args ...any) { p.add(false, do, what, args...) }

func (p *preflight) add(serious bool, do, what string, args ...any) {
	p.found = append(p.found, Problem{fmt.Sprintf(what, args...), do, serious})
}

// directories compares the settings with the runtime's version and configuration.
func (p *preflight) directories(ctx context.Context, runtime *cri.Client, version report.Runtime) {
	if p.settings.Mode == report.DropIn && version.IgnoresDropIns() {
		p.serious("use --mode insert", "%s %s loads no drop-in", version.Name, version.Version)
	}
	reported, source := cri.ReadCNISettings(ctx, p.settings.Root, runtime)
	if source == "" {
		p.note("check that --net-dir and --bin-dir are the runtime's",
			"neither the runtime nor a file of containerd or CRI-O says where the runtime looks")
		return
	}
	if reported.ConfDir != "" && reported.ConfDir != p.settings.NetDir && !p.settings.Mode.UnderMultus() {
		p.serious("use "+report.Command("--net-dir", reported.ConfDir),
			"according to %s, the runtime reads network configurations in %s, not in %s", source, reported.ConfDir, p.settings.NetDir)
	}
	if len(reported.BinDirs) > 0 &&
		!slices.ContainsFunc(p.settings.BinDirs, func(dir string) bool { return slices.Contains(reported.BinDirs, dir) }) {
		p.serious("use "+report.Command("--bin-dir", strings.Join(reported.BinDirs, ",")),
			"according to %s, the runtime executes plugins in %q, not in %q", source, reported.BinDirs, p.settings.BinDirs)
	}
	if err := conflist.CheckMaxConfNum(p.settings.Mode, reported.MaxConfNum, source); err != nil {
		p.serious("set it to 1, or use another mode", "%v", err)
	}
}

// writable checks the directories that the agent writes to and that others own. It calls
// access(2), which writes nothing.
func (p *preflight) writable() {
	directories := append([]string{p.settings.NetDir}, p.settings.BinDirs...)
	if p.settings.KeepsBootFiles() {
		directories = append(directories, p.settings.TmpfilesDir)
	}
	for _, directory := range directories {
		err := unix.Access(p.settings.At(directory), unix.W_OK|unix.X_OK)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			p.serious("mount it, or set the right directory", "%s does not exist", directory)
		case host.IsDenial(p.label, p.settings.At(directory), err):
			what, do := host.DescribeDenial(p.label, p.settings.At(directory))
			p.serious(do, "%s can't be written to (%v): %s", directory, err, what)
		case err != nil:
			p.serious("mount it writable; on a read-only image, use the directory of the platform's documentation",
				"%s can't be written to (%v)", directory, err)
		}
	}
}

// chain checks what mode multus-chain needs besides its directory.
func (p *preflight) chain() {
	if p.settings.TmpfilesDir == "" {
		p.note("set --tmpfiles-dir /etc/tmpfiles.d if that directory is emptied at boot",
			"nothing recreates the entry in %s at boot: pods that start before the agent run uncaptured", p.settings.NetDir)
	}
	if p.settings.Entry.Conf.Status == config.StatusStrict {
		p.note("remove it from --netconf", `Multus passes neither STATUS nor CHECK on to its chain: {"status": "strict"} has no effect`)
	}
}

// lists checks the lists next to which the entry should be.
func (p *preflight) lists(net conflist.Net) {
	switch p.settings.Mode {
	case report.MultusChain:
		if err := conflist.ChainFault(net); err != nil {
			p.serious("ask the owner of the file", "%v", err)
		}
		return
	case report.Multus: // the entry needs no list
		return
	}
	found, err := conflist.Primaries(net)
	if conflist.IsWaiting(err) {
		p.note("the agent will wait for it", "%v", err)
		return
	}
	if err != nil {
		p.serious("correct it, or ask its owner to", "%v", err)
		return
	}
	mode := p.settings.Mode
	if mode == report.Auto {
		mode = conflist.WithoutDropIn(net)
	}
	others, _, _ := conflist.Beside(net, mode, p.settings.BesideIstioCNI)
	for _, other := range others {
		what, do := other.Describe()
		p.add(other.Decision == conflist.Refused, do, "%s", what)
	}
	for i, list := range found {
		if slices.ContainsFunc(list.List.Plugins, func(plugin conflist.Plugin) bool { return strings.HasPrefix(plugin.Type, "multus") }) {
			p.note("consider --mode multus; Multus passes no annotations on, so that every pod costs an API read", "%s belongs to Multus", list.File)
		}
		switch err := list.CheckVersion(); {
		case err != nil:
			p.serious("correct it, or ask its owner to", "%v", err)
		case list.Accepts(mode) != nil:
			p.serious("set it with --mode", "%v", list.Accepts(mode))
		case i > 0 && mode == report.Owned:
			p.serious("delete that file if it is unused, or name every directory of the runtime's plugins in --bin-dir",
				"the runtime may load %s, to which mode %s adds no entry: CRI-O skips %s if it lacks a program", list.File, mode, found[0].File)
		}
	}
}

// kernel applies every kind of rule in a scratch network namespace.
func (p *preflight) kernel(ctx context.Context) {
	if os.Geteuid() != 0 {
		p.note("run it as root", "the kernel was not tested: that needs root")
		return
	}
	verdict, err := backend.Test(ctx, "", p.settings.Entry.Asked, backend.Verdict{})
	switch {
	case err != nil:
		p.note("run it on the node, as root", "the kernel was not tested (%v)", err)
	case verdict.Chosen != "":
		for _, note := range verdict.Notes(verdict.Asked) {
			p.note("load the module, if pods of the mesh need it", "%s", note)
		}
	default:
		do := "load the kernel's netfilter modules"
		if other, err := backend.Test(ctx, "", backend.Auto, backend.Verdict{}); err == nil && other.Chosen != "" {
			do = fmt.Sprintf(`set {"backend": %q} in --netconf`, other.Chosen)
		}
		p.serious(do, "%s", verdict.Reason)
	}
}
