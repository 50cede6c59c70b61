// SPDX-License-Identifier: Apache-2.0

// Package runtimes compares the agent's answer to "which list would this runtime load, and
// would it call us?" with the loaders of containerd and of CRI-O.
package runtimes

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/containerd/go-cni"
	"github.com/cri-o/ocicni/pkg/ocicni"
	"github.com/sirupsen/logrus"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

func TestMain(m *testing.M) {
	logrus.SetOutput(io.Discard)
	os.Exit(m.Run())
}

// loaded is what a loader made of a directory.
type loaded struct {
	Network string   // the name of the first one, "" if it loads none
	Types   []string // the plugins that it would call for a pod
}

// oracles are the loaders of the runtimes, by the name that a runtime reports.
var oracles = map[string]func(netDir, binDir string) loaded{"containerd": loadContainerd, "cri-o": loadCRIO}

func loadContainerd(netDir, binDir string) (l loaded) {
	loader, err := cni.New(cni.WithPluginDir([]string{binDir}), cni.WithPluginConfDir(netDir), cni.WithPluginMaxConfNum(1))
	if err != nil || loader.Load(cni.WithDefaultConf) != nil {
		return l
	}
	for _, network := range loader.GetConfig().Networks {
		l.Network = network.Config.Name
		for _, plugin := range network.Config.Plugins {
			l.Types = append(l.Types, plugin.Network.Type)
		}
	}
	return l
}

// loadCRIO reads the fields of the loader, which has no method for them.
func loadCRIO(netDir, binDir string) (l loaded) {
	loader, err := ocicni.InitCNINoInotify("", netDir, filepath.Join(binDir, ".cache"), binDir)
	if err != nil {
		return l
	}
	defer func() { _ = loader.Shutdown() }()
	if l.Network = loader.GetDefaultNetworkName(); l.Network == "" {
		return l
	}
	network := reflect.ValueOf(loader).Elem().FieldByName("networks").MapIndex(reflect.ValueOf(l.Network)).Elem()
	plugins := network.FieldByName("config").Elem().FieldByName("Plugins")
	for i := range plugins.Len() {
		l.Types = append(l.Types, plugins.Index(i).Elem().FieldByName("Network").Elem().FieldByName("Type").String())
	}
	return l
}

// program answers VERSION as a plugin does: CRI-O calls each plugin of a list.
const program = `#!/bin/sh
echo '{"cniVersion":"1.0.0","supportedVersions":["0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}'
`

// makeNode makes the directories of a runtime. A value that starts with "->" is a link.
func makeNode(t *testing.T, files map[string]string, programs []string) (netDir, binDir string) {
	t.Helper()
	root := t.TempDir()
	netDir, binDir = filepath.Join(root, "net.d"), filepath.Join(root, "bin")
	lab.Check(t, errors.Join(os.Mkdir(netDir, 0o755), os.Mkdir(binDir, 0o755), os.WriteFile(filepath.Join(root, "outside"), []byte(list("outside", "ptp")), 0o600)))
	for name, content := range files {
		write(t, filepath.Join(netDir, name), content)
	}
	for _, name := range programs {
		lab.Check(t, os.WriteFile(filepath.Join(binDir, name), []byte(program), 0o755))
	}
	return netDir, binDir
}

func write(t *testing.T, path, content string) {
	t.Helper()
	lab.Check(t, os.MkdirAll(filepath.Dir(path), 0o755))
	if target, isLink := cutLink(content); isLink {
		lab.Check(t, os.Symlink(target, path))
		return
	}
	lab.Check(t, os.WriteFile(path, []byte(content), 0o644))
}
