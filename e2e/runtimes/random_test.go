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
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/report"
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
	total, hidden := 0, 0
	for range *count {
		d := generate(r)
		for runtime := range oracles {
			for _, what := range disagree(t, d, runtime) {
				if strings.HasPrefix(what, hiddenPrefix) {
					hidden++
					continue
				}
				total++
				if disagreements[what]++; disagreements[what] <= 3 {
					t.Errorf("%s: %s: %q, programs %q, %d lists, network %q", runtime, what, d.files, d.programs, 1+d.most, d.network)
				}
			}
		}
	}
	t.Logf("%d directories, 2 loaders, 3 modes: %d disagreements: %v; %d times CRI-O goes by a fault of a program that no agent sees", *count, total, disagreements, hidden)
}

// hiddenPrefix begins what differs only because a program fails VERSION.
const hiddenPrefix = "hidden: "

// disagree returns in what agent and loader differ.
func disagree(t *testing.T, d directory, runtime string) (found []string) {
	t.Helper()
	n := makeNode(t, d)
	known, unknown := agent{runtime, n}, agent{"", n}
	differ := func(differs bool, format string, args ...any) {
		if differs {
			found = append(found, fmt.Sprintf(format, args...))
		}
	}
	load := func() loaded { return oracles[runtime](n, n.mended) }
	networks, err := known.finds()
	truth := load()
	loopback := truth.Network == "" && len(truth.Types) > 0 // the agent waits for another list
	doubts := runtime == "cri-o" && !n.seesAll()            // then CRI-O may load nothing, so that no pod starts
	agrees := slices.Contains(networks, truth.Network) || truth.Network == "" && (doubts || len(networks) == 0)
	differ((!agrees || loopback && err == nil) && !isCautious(err), "another list (%v)", err)
	differ((known.called() == nil) != truth.calls() && !isCautious(known.called()), "without an entry")
	for _, mode := range []report.Mode{report.Insert, report.DropIn, report.Owned} {
		if mode == report.Owned && d.most != 0 { // refused by CheckMaxConfNum
			continue
		}
		for _, a := range []agent{known, unknown} {
			before := tree(t, n.netDir)
			fault, called := a.place(mode), a.called()
			now := load()
			fails := !now.calls() && (a.runtime != "" && !doubts || now.Network != "")
			differ(fault == nil && fails, "no fault, not called: %s", mode)
			differ(called == nil && fails, "counts as called, not called: %s", mode)
			differ(a.runtime != "" && called != nil && now.calls() && !isCautious(called), "called, counts as not called: %s", mode)
			differ(fault == nil && n.hides && !fails && !oracles[runtime](n, n.bins).calls(), hiddenPrefix+"%s", mode)
			placed := tree(t, n.netDir)
			for name, content := range before {
				now, there := placed[name]
				_, isLink := cutLink(content)
				differ(!there, "a file is gone: %s", mode)
				differ(isLink && now != content, "a link is replaced: %s", mode)
				differ(now != content && (mode != report.Insert || filepath.Ext(name) != ".conflist"), "a file is changed: %s", mode)
			}
			differ(a.remove() != nil, "removal fails: %s", mode)
			if diff := cmp.Diff(before, tree(t, n.netDir)); diff != "" {
				differ(true, "removal leaves another directory: %s", mode)
				lab.Check(t, os.RemoveAll(n.netDir))
				for name, content := range d.files {
					write(t, filepath.Join(n.netDir, name), content)
				}
			}
		}
	}
	return found
}

// isCautious reports whether the agent says that it can't use what the loader would load: a
// file that it does not follow, or one in which the entry would break pods.
func isCautious(err error) bool { return err != nil && !conflist.IsWaiting(err) }

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
