// SPDX-License-Identifier: Apache-2.0

// Package runtimes compares the agent's answer to "which list would this runtime load, and
// would it call us?" with the loaders of containerd and of CRI-O.
package runtimes

import (
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/go-cni"
	"github.com/cri-o/ocicni/pkg/ocicni"
	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

func TestMain(m *testing.M) {
	logrus.SetOutput(io.Discard)
	klog.SetLogger(klog.Logger{})
	_ = os.Setenv("CNI_NETNS", "/proc/self/ns/none") // of each DEL
	os.Exit(m.Run())
}

// loaded is what a loader made of a directory.
type loaded struct {
	Network string   // the name of the first one that is not loopback, "" if it loads none
	Types   []string // the plugins that it would call for a pod
	entry   string   // ours
}

func (l loaded) calls() bool { return slices.Contains(l.Types, "capture-cni") }

// keep keeps the text of our entry.
func (l *loaded) keep(kind, text string) {
	if kind == "capture-cni" {
		l.entry = text
	}
}

// oracles are the loaders of the runtimes, by the name that a runtime reports.
var oracles = map[string]func(n node, bins []string) loaded{"containerd": loadContainerd, "cri-o": loadCRIO}

func loadContainerd(n node, bins []string) (l loaded) {
	loader, err := cni.New(cni.WithPluginDir(bins), cni.WithPluginConfDir(n.netDir), cni.WithPluginMaxConfNum(1+n.most))
	if err != nil || loader.Load(cni.WithDefaultConf) != nil {
		return l
	}
	for _, network := range loader.GetConfig().Networks {
		var types []string
		for _, plugin := range network.Config.Plugins {
			types = append(types, plugin.Network.Type)
			l.keep(plugin.Network.Type, plugin.Source)
		}
		if l.Types = append(l.Types, types...); l.Network == "" && !slices.Equal(types, []string{"loopback"}) {
			l.Network = network.Config.Name
		}
	}
	return l
}

// executing is held while CRI-O's loader executes programs. The kernel executes no program that is open
// for writing, and a process that another goroutine starts has a copy of each open file until its exec.
var executing sync.Mutex

// loadCRIO reads the fields of the loader, which has no method for them.
func loadCRIO(n node, bins []string) (l loaded) {
	executing.Lock()
	defer executing.Unlock()
	loader, err := ocicni.InitCNINoInotify(n.network, n.netDir, filepath.Join(bins[0], ".cache"), bins...)
	if err != nil {
		return l
	}
	defer func() { _ = loader.Shutdown() }()
	network := reflect.ValueOf(loader).Elem().FieldByName("networks").MapIndex(reflect.ValueOf(loader.GetDefaultNetworkName()))
	if !network.IsValid() {
		return l
	}
	plugins := network.Elem().FieldByName("config").Elem().FieldByName("Plugins")
	for i := range plugins.Len() {
		plugin := plugins.Index(i).Elem()
		l.Types = append(l.Types, plugin.FieldByName("Network").Elem().FieldByName("Type").String())
		l.keep(l.Types[i], string(plugin.FieldByName("Bytes").Bytes()))
	}
	if !slices.Equal(l.Types, []string{"loopback"}) {
		l.Network = loader.GetDefaultNetworkName()
	}
	return l
}

// node is the directories of a runtime. Those of plugins exist a second time, where those programs
// are mended of which the agent can't see that they fail.
type node struct {
	directory
	netDir       string
	bins, mended []string // the agent sees the first one
	hides        bool     // bins and mended differ
}

func makeNode(t *testing.T, d directory) node {
	t.Helper()
	root := t.TempDir()
	at := func(name string) string { return filepath.Join(root, name) }
	n := node{d, at("net.d"), []string{at("bin"), at("more")}, []string{at("bin"), at("more")}, false}
	for _, directory := range []string{n.netDir, at("bin"), at("more"), at("mended")} {
		lab.Check(t, os.Mkdir(directory, 0o755))
	}
	lab.Check(t, os.WriteFile(at("outside"), []byte(list("outside", "ptp")), 0o600))
	for name, content := range d.files {
		write(t, at("net.d/"+name), content)
	}
	for _, name := range d.programs {
		name, way, isWrong := strings.Cut(name, ":")
		bin, text, mode := "bin/", program, os.FileMode(0o755)
		if isWrong {
			text = wrong[way] + hidden[way]
		}
		switch {
		case way == "elsewhere":
			bin = "more/"
		case way == "no permission":
			mode = 0o644
		case hidden[way] != "":
			n.hides, n.mended = true, []string{at("mended"), at("bin"), at("more")}
			lab.Check(t, os.WriteFile(at("mended/"+name), []byte(program), mode))
		}
		lab.Check(t, os.WriteFile(at(bin+name), []byte(text), mode))
	}
	return n
}

// seesAll reports whether no program is in a directory that the agent does not see.
func (n node) seesAll() bool {
	return !slices.ContainsFunc(n.programs, func(name string) bool { return strings.HasSuffix(name, ":elsewhere") })
}

func write(t *testing.T, path, content string) {
	t.Helper()
	lab.Check(t, os.MkdirAll(filepath.Dir(path), 0o755))
	if target, isLink := cutLink(content); isLink {
		lab.Check(t, os.Symlink(target, path))
		return
	}
	content, isDenied := strings.CutPrefix(content, "!")
	lab.Check(t, os.WriteFile(path, []byte(content), 0o644))
	if isDenied {
		lab.Check(t, os.Chmod(path, 0))
	}
}
