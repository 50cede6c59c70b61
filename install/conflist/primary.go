// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/report"
)

// primary is a list that the runtime may load. Primaries omits the agent's own list.
type primary struct {
	File  string
	text  []byte
	List  *List
	types []string // of all plugins that the runtime would call, including drop-ins
	alone string   // why the agent leaves the file alone; "" if it may edit it
	conf  bool     // the file is a plain configuration, of which List was made
	made  bool     // an earlier release made the file of a plain configuration, whose owner may write that again
}

// OwnedName is the name of the list of mode owned. It sorts before the files of all known installers.
const OwnedName = "00-capture-cni.conflist"

// FindPrimary returns the first list of Primaries. It returns an error if there is none, if the
// list's version does not permit our entry, or if the list has no interface plugin.
func FindPrimary(net Net) (primary, error) {
	found, err := Primaries(net)
	if err != nil {
		return primary{}, err
	}
	return found[0], found[0].CheckVersion()
}

// Primaries returns the lists of which the runtime would load one if there were no agent. It returns an
// error, often Waiting, if there is none, or if it can't read a list that the runtime may load.
func Primaries(net Net) (found []primary, err error) {
	choices, err := net.load(false)
	if err != nil {
		return nil, err
	}
	for _, set := range choices.sets {
		i := slices.IndexFunc(set, func(p primary) bool { return !p.isLoopback() })
		if i < 0 {
			return nil, Waiting(set[0].File + ", which the runtime loads, has only the plugin loopback: " +
				"the interface plugin has not been installed yet, or its file sorts after this one")
		}
		p := set[i]
		if !slices.ContainsFunc(found, func(other primary) bool { return other.File == p.File }) {
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		err := Waiting("no network configuration in " + net.Path() + ": the interface plugin has not been installed yet, " +
			"or CRI-O's cni_default_network names another network")
		if len(choices.skipped) > 0 {
			err += Waiting("; CRI-O skips a list that is faulty or lacks a program: " + errors.Join(choices.skipped...).Error())
		}
		return nil, err
	}
	return found, nil
}

// IsAmbiguous reports whether the agent can't determine which of several lists the runtime loads.
func IsAmbiguous(net Net) bool {
	found, _ := Primaries(net)
	return len(found) > 1
}

// eachPrimary calls do with each primary list that accepts an entry in this mode. It returns the errors
// of do, and the reasons why the other lists accept no entry.
func eachPrimary(net Net, mode report.Mode, do func(primary) error) error {
	found, err := Primaries(net)
	for _, p := range found {
		refused := p.Accepts(mode)
		if refused == nil {
			refused = do(p)
		}
		err = errors.Join(err, refused)
	}
	return err
}

// WithoutDropIn returns the mode that Auto chooses if the runtime does not report that it has loaded a
// drop-in: Owned if the agent must not change a primary file, or if an earlier release renamed one, and
// otherwise Insert.
func WithoutDropIn(net Net) report.Mode {
	found, _ := Primaries(net)
	if len(originals(net)) > 0 || slices.ContainsFunc(found, func(p primary) bool { return p.alone != "" }) {
		return report.Owned
	}
	return report.Insert
}

// read reads a list as libcni does. If own is false, it ignores our drop-in. The error is usually
// Waiting if the runtime can't load the list either.
func (n Net) read(name string, own bool) (p primary, err error) {
	p = primary{File: name, conf: filepath.Ext(name) != ".conflist"}
	link, err := n.Link(name)
	if err == nil {
		p.text, err = n.Read(name)
	}
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist), link != "" && errors.Is(err, host.ErrNotRegular):
		return p, Waiting(fmt.Sprintf("%s in %s can't be read: %v", name, n.Path(), err))
	case link != "":
		return p, fmt.Errorf("%s/%s is a link to %s, which the agent does not follow: "+
			"replace the link by a copy of that file, or ask its owner to", n.Path(), name, link)
	default:
		return p, err
	}
	for _, original := range originals(n) {
		if stem(stem(original)) == stem(name) {
			p.made, p.alone = true, "was made by an earlier release from the plain configuration "+stem(original)
		}
	}
	if p.conf {
		p.alone = "is a plain configuration"
	}
	if link != "" {
		p.alone = "is a link to " + link
	}
	if err = p.parse(); err == nil {
		err = n.readDropIns(&p, own)
	}
	if err == nil && len(p.types) == 0 {
		err = Waiting(name + " has no plugin")
	}
	return p, err
}

func (p *primary) parse() (err error) {
	text, incomplete := p.text, error(nil)
	if p.conf {
		incomplete = checkPlugin(text)
		text, _ = fromConf(text) // checkPlugin returned the same error
	} else if _, err := libcni.NetworkConfFromBytes(text); err != nil {
		_, incomplete = Parse(text)
	}
	if incomplete != nil {
		return Waiting(fmt.Sprintf("%s is not complete, or not valid: %v", p.File, incomplete))
	}
	if p.List, err = Parse(text); err != nil {
		return fmt.Errorf("%s, which the runtime loads: %w", p.File, err) // Parse demands more than libcni
	}
	for _, plugin := range p.List.Plugins {
		p.types = append(p.types, plugin.Type)
	}
	return nil
}

// isFile reports whether a name is that of a readable file. readDropIns needs it because os.Root returns
// an error without a type for a file in the place of a directory.
func (n Net) isFile(name string) bool {
	_, err := n.Read(name)
	return err == nil
}

// readDropIns appends the types of the plugins in the directory with the network's name to p.types. If
// own is false, it omits our own drop-in.
func (n Net) readDropIns(p *primary, own bool) error {
	if p.conf || p.List.LoadOnlyInlinedPlugins || n.Runtime.IgnoresDropIns() {
		return nil
	}
	directory, err := n.Sub(filepath.Clean(p.List.Name), false)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil && n.isFile(filepath.Clean(p.List.Name)):
		return Waiting(fmt.Sprintf("%s needs a directory %s/%s, which is a file", p.File, n.Path(), p.List.Name))
	case err != nil:
		return err
	}
	defer directory.Close()
	names, err := directory.Names()
	for _, name := range names {
		if filepath.Ext(name) != ".conf" || name == DropInName && !own {
			continue
		}
		text, readErr := directory.Read(name)
		plugin, parseErr := libcni.NetworkPluginConfFromBytes(text)
		if readErr != nil || parseErr != nil {
			return Waiting(fmt.Sprintf("%s can't be loaded: %s/%s is no plugin's configuration: correct or delete that file",
				p.File, directory.Path(), name))
		}
		p.types = append(p.types, plugin.Network.Type)
	}
	return err
}

// Accepts returns nil if the entry can be added to this list in this mode, and otherwise the reason.
func (p primary) Accepts(mode report.Mode) error {
	switch {
	case (p.conf || p.made) && mode == report.DropIn, p.alone != "" && mode == report.Insert:
		return fmt.Errorf("%s %s, to which mode %s can't add the entry: use mode %q, which leaves the file alone",
			p.File, p.alone, mode, report.Owned)
	case p.List.LoadOnlyInlinedPlugins && mode == report.DropIn:
		return fmt.Errorf("%s has loadOnlyInlinedPlugins: the runtime loads no drop-in; use mode %q", p.File, report.Insert)
	}
	return p.CheckVersion()
}

func (p primary) isLoopback() bool { return slices.Equal(p.types, []string{"loopback"}) }

// CheckVersion returns an error if the entry would break every pod, because the list's version has no
// chained plugins or is newer than the plugin supports, or because the list has no interface plugin.
func (p primary) CheckVersion() error {
	if p.List.CNIVersion == "" {
		return fmt.Errorf("%s has no cniVersion, which means 0.1.0 without chained plugins: set 0.3.0 or newer", p.File)
	}
	if !slices.Contains(version.VersionsStartingFrom("0.3.0").SupportedVersions(), p.List.CNIVersion) {
		return fmt.Errorf("%s has cniVersion %s, which the plugin does not support: expected 0.3.0 to 1.1.0",
			p.File, Shown(p.List.CNIVersion))
	}
	if !p.List.HasOthers() {
		return fmt.Errorf("%s: %w", p.File, errNoInterfacePlugin)
	}
	return nil
}

// Owner returns the type of the list's first plugin other than ours, which usually shows what program
// writes the list.
func (p primary) Owner() string {
	for _, plugin := range p.List.Plugins {
		if plugin.Type != PluginType {
			return Shown(plugin.Type)
		}
	}
	return "unknown"
}
