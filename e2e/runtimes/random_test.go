// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/entry"
	"github.com/capture-cni/capture-cni/install/terms"
)

var (
	seed  = flag.Uint64("seed", 1, "of the generator")
	count = flag.Int("directories", 300, "how many are tried")
)

// TestRandom asks agent and loader about random directories: which network is loaded, whether
// the loader calls the plugin after each mode has placed the entry, and what removal leaves.
func TestRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(*seed, 0))
	disagreements := map[string]int{}
	for range *count {
		d := generate(r)
		for runtime, load := range oracles {
			for _, what := range disagree(t, d, runtime, load) {
				if disagreements[what]++; disagreements[what] <= 3 {
					t.Errorf("%s: %s: %q, programs %q", runtime, what, d.files, d.programs)
				}
			}
		}
	}
	total := 0
	for _, n := range disagreements {
		total += n
	}
	t.Logf("%d directories, 2 loaders, 3 modes: %d disagreements: %v", *count, total, disagreements)
}

// disagree returns in what agent and loader differ.
func disagree(t *testing.T, d directory, runtime string, load func(netDir, binDir string) loaded) (found []string) {
	t.Helper()
	netDir, binDir := makeNode(t, d.files, d.programs)
	known, unknown := agent{runtime, netDir, binDir}, agent{"", netDir, binDir}
	differ := func(differs bool, format string, args ...any) {
		if differs {
			found = append(found, fmt.Sprintf(format, args...))
		}
	}
	calls := func() bool { return slices.Contains(load(netDir, binDir).Types, "capture-cni") }
	starts := func() bool { return load(netDir, binDir).Network != "" } // else no pod starts
	network, err := known.finds()
	truth := load(netDir, binDir)
	loopback := slices.Equal(truth.Types, []string{"loopback"}) // the agent waits for another list
	differ((network != truth.Network && !loopback || loopback && err == nil) && !isCautious(err), "another list (%v)", err)
	differ((known.called() == nil) != calls() && !isCautious(known.called()), "without an entry")
	for _, mode := range []terms.Mode{terms.Insert, terms.DropIn, terms.Owned} {
		for _, a := range []agent{known, unknown} {
			before := tree(t, netDir)
			fault := a.place(mode)
			differ(fault == nil && !calls() && (a == known || starts()), "no fault, not called: %s", mode)
			differ(a.called() == nil && !calls() && (a == known || starts()), "counts as called, not called: %s", mode)
			differ(a == known && a.called() != nil && calls() && !isCautious(a.called()), "called, counts as not called: %s", mode)
			placed := tree(t, netDir)
			for name, content := range before {
				now, there := placed[name]
				_, isLink := cutLink(content)
				differ(!there, "a file is gone: %s", mode)
				differ(isLink && now != content, "a link is replaced: %s", mode)
				differ(now != content && (mode != terms.Insert || filepath.Ext(name) != ".conflist"), "a file is changed: %s", mode)
			}
			differ(a.remove() != nil, "removal fails: %s", mode)
			if diff := cmp.Diff(before, tree(t, netDir)); diff != "" {
				differ(true, "removal leaves another directory: %s", mode)
				lab.Check(t, os.RemoveAll(netDir))
				for name, content := range d.files {
					write(t, filepath.Join(netDir, name), content)
				}
			}
		}
	}
	return found
}

// isCautious reports whether the agent says that it can't use what the loader would load: a
// file that it does not follow, or one in which the entry would break pods.
func isCautious(err error) bool { return err != nil && !entry.IsWaiting(err) }

// tree returns all files, and links as makeNode makes them.
func tree(t *testing.T, directory string) map[string]string {
	t.Helper()
	found := map[string]string{}
	lab.Check(t, filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, _ := filepath.Rel(directory, path)
		if entry.Type() == fs.ModeSymlink {
			target, err := os.Readlink(path)
			found[name] = "->" + target
			return err
		}
		content, err := os.ReadFile(path)
		found[name] = string(content)
		return err
	}))
	return found
}
