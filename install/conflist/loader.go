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

// Loader is how the node's runtime chooses what it loads. While the runtime is unknown, what
// holds must hold for containerd and for CRI-O.
type Loader struct {
	Runtime report.Runtime
	Most    int      // lists that containerd loads; 0 for all
	Network string   // that CRI-O uses; "" for the first one
	BinDirs []string // of plugins, as the agent sees them
	SeesAll bool     // CRI-O has no other directory of plugins
}

// Net is the runtime's directory of conflists.
type Net struct {
	*host.Dir
	Loader
}

// choices is what the runtime loads: one of the sets. There are several where the agent can't
// see which: the runtime is unknown, or a program may be in a directory that it does not see.
type choices struct {
	sets    [][]primary
	skipped []error // why CRI-O skips a list
}

// load returns what the runtime loads; without own, as if the list of mode owned were missing
// and our program were there. containerd loads the first lists, or nothing if one of them is
// faulty. CRI-O skips a list that is faulty or that names a program which is missing.
func (n Net) load(own bool) (found choices, err error) {
	names, err := n.Names()
	if err != nil {
		return found, err
	}
	var first []primary   // of containerd
	var doubts [][]string // of lists that CRI-O may skip: their programs that the agent does not see
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
		case slices.ContainsFunc(doubts, p.names): // skipped if the former is
		case p.isLoopback() && len(found.sets) > 0: // a pod with it alone has no network
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

// unseen returns the types of a list whose programs the agent does not see, or sees to be none.
func (n Net) unseen(p primary, own bool) (unseen []string) {
	for _, kind := range p.types {
		path, err := invoke.FindInPath(kind, n.BinDirs) // as CRI-O does
		if (err != nil || !isProgram(path)) && (own || kind != PluginType) {
			unseen = append(unseen, kind)
		}
	}
	return unseen
}

// isProgram reports whether the kernel would execute a file. CRI-O also skips a list whose program
// fails VERSION, which the agent can't call: the program may need the node's files.
func isProgram(path string) bool {
	file, err := host.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	info, err := file.Stat()
	start := make([]byte, len(elf.ELFMAG))
	_, _ = io.ReadFull(file, start) // zero where it is too short
	return err == nil && info.Mode().Perm()&0o111 != 0 && (string(start) == elf.ELFMAG || string(start[:2]) == "#!")
}

// names reports whether a list names all of these types.
func (p primary) names(types []string) bool {
	return !slices.ContainsFunc(types, func(kind string) bool { return !slices.Contains(p.types, kind) })
}

// Called returns why the runtime would not call the plugin, nil if it would.
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
