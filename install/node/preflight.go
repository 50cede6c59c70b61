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

// Answer is a finding in the format of preflight's output, which is the same in all releases.
type Answer struct {
	What    string      `json:"what"`
	Do      string      `json:"do"`
	Serious bool        `json:"serious"` // pods would start uncaptured, or not at all
	Code    report.Code `json:"code"`
}

// Answers returns the findings of Check as Answers.
func Answers(findings report.Findings) []Answer {
	answers := make([]Answer, len(findings))
	for i, f := range findings {
		answers[i] = Answer{f.Reason, f.Next, f.Severity == report.Problem, f.Code}
	}
	return answers
}

// Check returns findings about obstacles to an installation on a node. It changes no file of the node.
func Check(ctx context.Context, settings Settings, runtime *cri.Client) report.Findings {
	p := preflight{settings: settings, found: inAgent(ctx, settings, runtime)}
	p.kernel(ctx)
	return p.found
}

// inAgent returns the findings of Check without the test of the kernel. The agent's container has
// neither the capabilities nor iptables for this test.
func inAgent(ctx context.Context, settings Settings, runtime *cri.Client) report.Findings {
	p := preflight{settings: settings, label: host.OwnLabel()}
	links, _ := net.Interfaces() // this network namespace is the node's
	for _, link := range links {
		p.links = append(p.links, link.Name)
	}
	loader := loaderOf(ctx, settings, runtime)
	if p.runtime = loader.Runtime; p.runtime != (report.Runtime{}) {
		p.found = append(p.found, report.CheckRuntime(p.runtime, p.settings.Mode)...)
	}
	p.directories(ctx, runtime)
	p.writable()
	if p.settings.Mode == report.MultusChain {
		p.chain()
	}
	if net, err := host.OpenDir(p.settings.At(p.settings.NetDir), p.settings.Disk); err == nil { // otherwise writable has reported the error
		p.lists(conflist.Net{Dir: net, Loader: loader})
		p.exclusive(net)
		_ = net.Close()
	}
	p.modes()
	p.socketBalancing()
	if enforcing, err := os.ReadFile(p.settings.At("/sys/fs/selinux/enforce")); err == nil && strings.TrimSpace(string(enforcing)) == "1" {
		p.note(report.SELinux,
			"run the agent with a type that may write to the node's directories (chart: seLinuxOptions.type=spc_t)", "SELinux is enforcing")
	}
	return p.found
}

type preflight struct {
	settings Settings
	label    string   // the label that the node's security module gives to this process
	links    []string // network interfaces of the node
	found    report.Findings
	runtime  report.Runtime // zero if the runtime is unknown
}

func (p *preflight) serious(code report.Code, do, what string, args ...any) {
	p.found = append(p.found, report.Finding{Code: code, Severity: report.Problem, Reason: fmt.Sprintf(what, args...), Next: do})
}

func (p *preflight) note(code report.Code, do, what string, args ...any) {
	p.found = append(p.found, report.Finding{Code: code, Severity: report.Note, Reason: fmt.Sprintf(what, args...), Next: do})
}

// directories compares the settings with the runtime's configuration.
func (p *preflight) directories(ctx context.Context, runtime *cri.Client) {
	reported, source := cri.ReadCNISettings(ctx, p.settings.Root, runtime)
	if source == "" {
		p.note(report.DirectoriesUnknown, "check that --bin-dir and, except under Multus, --net-dir are the runtime's",
			"neither the runtime nor a file of containerd or CRI-O says which CNI directories the runtime uses")
		return
	}
	if reported.ConfDir != "" && reported.ConfDir != p.settings.NetDir && !p.settings.Mode.UnderMultus() {
		p.serious(report.NetDirWrong, "use "+report.Command("--net-dir", reported.ConfDir),
			"according to %s, the runtime reads network configurations in %s, not in %s", source, reported.ConfDir, p.settings.NetDir)
	}
	if len(reported.BinDirs) > 0 &&
		!slices.ContainsFunc(p.settings.BinDirs, func(dir string) bool { return slices.Contains(reported.BinDirs, dir) }) {
		p.serious(report.BinDirWrong, "use "+report.Command("--bin-dir", strings.Join(reported.BinDirs, ",")),
			"according to %s, the runtime executes plugins in %q, not in %q", source, reported.BinDirs, p.settings.BinDirs)
	}
	if err := conflist.CheckMaxConfNum(p.settings.Mode, reported.MaxConfNum, source); err != nil {
		p.serious(report.ManyLists, "set it to 1, or use another mode", "%v", err)
	}
}

// writable checks directories to which the agent writes, but that other programs own. It calls
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
			p.serious(report.DirectoryMissing, "mount it, or set the right directory", "%s does not exist", directory)
		case host.IsDenial(p.label, p.settings.At(directory), err):
			what, do := host.DescribeDenial(p.label, p.settings.At(directory))
			p.serious(report.WriteDenied, do, "%s can't be written to (%v): %s", directory, err, what)
		case err != nil:
			p.serious(report.ReadOnly, "mount it writable; on a read-only image, use the directory that the platform's documentation names",
				"%s can't be written to (%v)", directory, err)
		}
	}
}

// chain adds the notes that concern only mode multus-chain.
func (p *preflight) chain() {
	if p.settings.TmpfilesDir == "" {
		p.note(report.NoBootFiles, "set --tmpfiles-dir /etc/tmpfiles.d if a boot empties --net-dir",
			"nothing recreates the entry in %s at boot, so if a boot removes it, pods start uncaptured until the agent runs", p.settings.NetDir)
	}
	if p.settings.Entry.Conf.Status == config.StatusStrict {
		p.note(report.StatusIgnored, "remove it from --netconf",
			`Multus passes neither STATUS nor CHECK on to its chain: {"status": "strict"} has no effect`)
	}
}

// lists checks the lists to which the agent would add the entry.
func (p *preflight) lists(net conflist.Net) {
	switch p.settings.Mode {
	case report.MultusChain:
		if err := conflist.ChainFault(net); err != nil {
			p.serious(report.ChainSkipped, "ask the owner of the file", "%v", err)
		}
		return
	case report.Multus: // the entry needs no list
		return
	}
	found, err := conflist.Primaries(net)
	if conflist.IsWaiting(err) {
		p.note(report.ListWaiting, "the agent will wait for it", "%v", err)
		return
	}
	if err != nil {
		p.serious(report.ListUnusable, "correct it, or ask its owner to", "%v", err)
		return
	}
	mode := p.settings.Mode
	if mode == report.Auto {
		mode = conflist.WithoutDropIn(net)
	}
	others, _, _ := conflist.Beside(net, mode, p.settings.BesideIstioCNI)
	for _, other := range others {
		p.found = append(p.found, other.Finding())
	}
	for i, list := range found {
		if slices.ContainsFunc(list.List.Plugins, func(plugin conflist.Plugin) bool { return strings.HasPrefix(plugin.Type, "multus") }) {
			p.note(report.MultusPrimary, "consider --mode multus, in which the plugin looks up each pod, because Multus passes no annotations",
				"%s belongs to Multus", list.File)
		}
		switch err := list.CheckVersion(); {
		case err != nil:
			p.serious(report.ListUnusable, "correct it, or ask its owner to", "%v", err)
		case list.Accepts(mode) != nil:
			p.serious(report.ModeRefused, "set it with --mode", "%v", list.Accepts(mode))
		case i > 0 && mode == report.Owned:
			p.serious(report.ListUncovered, "delete that file if it is unused, or name every directory of the runtime's plugins in --bin-dir",
				"the runtime may load %s, to which mode %s adds no entry: CRI-O skips %s if it lacks a program", list.File, mode, found[0].File)
		}
	}
}

// kernel tests in a temporary network namespace whether the kernel accepts every kind of rule. Without
// root, it only notes that the kernel was not tested.
func (p *preflight) kernel(ctx context.Context) {
	if os.Geteuid() != 0 {
		p.note(report.KernelUntested, "run it as root", "the kernel was not tested: that needs root")
		return
	}
	entry := p.settings.Entry
	verdict, err := backend.Test(ctx, "", entry.Asked, entry.Conf.Capture.Meshes, backend.Verdict{})
	switch {
	case err != nil:
		p.note(report.KernelUntested, "run it on the node, as root", "the kernel was not tested (%v)", err)
	case verdict.Chosen != "":
		for _, note := range verdict.Notes(verdict.Asked) {
			note.Next = note.Code.Advice()
			p.found = append(p.found, note)
		}
	default:
		do := "load the kernel's netfilter modules"
		if other, err := backend.Test(ctx, "", backend.Auto, entry.Conf.Capture.Meshes, backend.Verdict{}); err == nil && other.Chosen != "" {
			do = fmt.Sprintf(`set {"backend": %q} in --netconf`, other.Chosen)
		}
		p.serious(report.BackendUnusable, do, "%s", verdict.Reason)
	}
}
