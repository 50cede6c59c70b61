// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/history"
	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// socketName is where the agent hears the plugin, in the run folder.
const socketName = "agent.sock"

// ReportTo adds to the operator's keys where the plugin reports to, unless it is
// there that the plugin reports to by itself, or they say so.
func ReportTo(runDir string, netConf json.RawMessage) json.RawMessage {
	socket := filepath.Join(runDir, socketName)
	extra := bytes.TrimSpace(netConf)
	var keys map[string]json.RawMessage
	if len(extra) > 0 && (json.Unmarshal(extra, &keys) != nil || keys == nil) {
		return netConf // Entry says what is wrong with it
	}
	if _, said := keys["agentSocket"]; said || socket == config.Default().AgentSocket {
		return netConf
	}
	key := fmt.Appendf(nil, `{"agentSocket":%q`, socket)
	if len(keys) == 0 {
		return append(key, '}')
	}
	return append(append(key, ','), extra[1:]...)
}

// AgentSocket is where the agent hears the plugin, as the agent sees it; "" where
// the operator wants none.
func (s Settings) AgentSocket() (string, error) {
	entry, err := Entry(s.StateDir+"/"+kubeconfigName, s.NetConf, s.Mode)
	if err != nil {
		return "", err
	}
	conf, err := ReadEntry(entry)
	if err != nil || conf.AgentSocket == "" {
		return "", err
	}
	return s.at(conf.AgentSocket), nil
}

// guardName is the guard's directory in the run directory.
const guardName = "guard"

// GuardMemory is where the guard keeps what sandboxes hold, as the agent sees it.
func (s Settings) GuardMemory() string { return s.at(s.RunDir) + "/" + guardName }

// Plugin is the binary that is in place, as the agent sees it.
func (s Settings) Plugin() string { return s.at(s.BinDirs[0]) + "/" + binaryName }

// removeReports takes away the socket, what was kept for whoever listens there,
// and what the guard kept.
func (n *Node) removeReports() error {
	run, err := n.open(n.settings.RunDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	err = run.Remove(socketName)
	for _, folder := range []string{record.Spool(socketName), history.Directory(socketName), guardName} {
		err = errors.Join(err, empty(run, filepath.Base(folder)))
	}
	return errors.Join(err, run.Close())
}

// empty deletes a folder of files.
func empty(dir *host.Dir, name string) error {
	folder, err := dir.Sub(name, false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	names, err := folder.Names()
	errs := []error{err}
	for _, file := range names {
		errs = append(errs, folder.Remove(file))
	}
	return errors.Join(append(errs, folder.Close(), dir.RemoveDir(name))...)
}
