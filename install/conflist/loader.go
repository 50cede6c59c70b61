// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/invoke"

	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/report"
)

// Loader contains the settings by which the node's runtime chooses the lists that it loads. If the
// runtime is unknown, Net considers the choices of both containerd and CRI-O.
type Loader struct {
	Runtime report.Runtime
	Most    int      // number of lists that containerd loads; 0 means all
	Network string   // name of the network that CRI-O uses; "" for the first one
	BinDirs []string // directories of plugins, as the agent sees them
	SeesAll bool     // BinDirs contains all directories in which CRI-O looks for plugins
}

// Net is the directory to which the agent adds the entry: the runtime's or, under Multus, one of Multus.
type Net struct {
	*host.Dir
	Loader
}

// choices contains the sets of lists that the runtime may load. The runtime loads one set, or nothing if
// there is none. There are several if the runtime is unknown, or if a plugin's program may be in a
// directory that the agent can't see.
type choices struct {
	sets    [][]primary
	skipped []error // why CRI-O skips lists
}

// load returns the lists that the runtime may load. If own is false, it ignores the list of mode owned
// and our drop-in, and assumes that our program exists. containerd loads the first lists, but none if
// one of them is faulty. CRI-O skips lists that are faulty, or that name a plugin whose program is
// missing.
func (n Net) load(own bool) (found choices, err error) {
	names, err := n.Names()
	if err != nil {
		return found, err
	}
	var first []primary   // the lists that containerd loads
	var doubts [][]string // for each list that CRI-O may skip, the types whose programs the agent can't see
	certain := n.Runtime.IsContainerd()
	for _, name := range names {
		if !slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(name)) || name == OwnedName && !own {
			continue
		}
		readsFirst := !n.Runtime.IsCRIO() && (n.Most <= 0 || len(first) < n.Most)
		if certain && !readsFirst {
			break
		}
		p, err := n.read(name, own)
		if err != nil && (readsFirst || !IsWaiting(err)) {
			return found, err
		}
		if readsFirst {
			first = append(first, p)
		}
		unseen := n.unseen(p, own)
		switch {
		case certain:
		case err != nil:
			found.skipped = append(found.skipped, err)
		case len(unseen) > 0 && n.SeesAll, slices.Contains(unseen, PluginType):
			found.skipped = append(found.skipped, fmt.Errorf("%s names %s, whose programs are missing or broken", name, strings.Join(unseen, ", ")))
		case slices.ContainsFunc(doubts, p.names): // CRI-O skips this list if it skips that earlier list
		case p.isLoopback() && len(found.sets) > 0: // a pod with only this list has no network
		case n.Network == "" || n.Network == p.List.Name:
			found.sets = append(slices.DeleteFunc(found.sets, func(set []primary) bool { return set[0].isLoopback() }), []primary{p})
			certain, doubts = len(unseen) == 0, append(doubts, unseen)
		}
	}
	if len(first) > 0 {
		found.sets = append([][]primary{first}, found.sets...)
	}
	return found, nil
}

// unseen returns the types in a list for which the agent finds no program. If own is false, it ignores
// our own type.
func (n Net) unseen(p primary, own bool) (unseen []string) {
	for _, kind := range p.types {
		path, err := invoke.FindInPath(kind, n.BinDirs) // CRI-O searches in the same way
		if (err != nil || !isProgram(path)) && (own || kind != PluginType) {
			unseen = append(unseen, kind)
		}
	}
	return unseen
}

// isProgram reports whether a file is executable, and begins like an ELF file or a script. CRI-O also
// skips a list if a program fails the CNI command VERSION, or does not support the list's version.
// isProgram can't find that out, because the program may need files of the node to run.
func isProgram(path string) bool {
	file, err := host.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	info, err := file.Stat()
	start := make([]byte, len(elf.ELFMAG))
	_, _ = io.ReadFull(file, start) // stays zero if the file is too short
	return err == nil && info.Mode().Perm()&0o111 != 0 && (string(start) == elf.ELFMAG || string(start[:2]) == "#!")
}

// names reports whether a list contains all of these plugin types.
func (p primary) names(types []string) bool {
	return !slices.ContainsFunc(types, func(kind string) bool { return !slices.Contains(p.types, kind) })
}

// Called returns nil if each set of lists that the runtime may load contains the plugin, and otherwise
// the reason for which the runtime might not call the plugin.
func (n Net) Called() error {
	found, err := n.load(true)
	if err == nil && len(found.sets) == 0 {
		err = Waiting("the runtime loads no list in " + n.Path())
	}
	for _, set := range found.sets {
		if !slices.ContainsFunc(set, func(p primary) bool { return p.names([]string{PluginType}) }) {
			err = errors.Join(err, fmt.Errorf("the runtime may load %s, which has no entry: new pods would start without the plugin; "+
				"delete that file if it is unused, or name every directory of the runtime's plugins in --bin-dir", set[0].File))
		}
	}
	if err != nil && len(found.skipped) > 0 {
		err = fmt.Errorf("%w (CRI-O skips a list that is faulty or lacks a program: %v)", err, errors.Join(found.skipped...))
	}
	return err
}
