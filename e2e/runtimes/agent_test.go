// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"errors"

	"github.com/capture-cni/capture-cni/install/entry"
	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/terms"
)

var text = []byte(`{"type":"capture-cni","kubeconfig":"/var/lib/capture-cni/kubeconfig"}`)

// agent is what the agent makes of a runtime's directories.
type agent struct {
	runtime        string // as the runtime names itself; "" if it does not answer
	netDir, binDir string
}

// in calls do with the directory.
func (a agent) in(do func(entry.Net) error) error {
	net, err := host.OpenDir(a.netDir)
	if err != nil {
		return err
	}
	loader := entry.Loader{Runtime: terms.Runtime{Name: a.runtime, Version: "2.1.0"}, BinDirs: []string{a.binDir}, SeesAll: a.runtime != "", Most: 1}
	return errors.Join(do(entry.Net{Dir: net, Loader: loader}), net.Close())
}

// finds returns the network that the runtime would load without the agent.
func (a agent) finds() (network string, err error) {
	err = a.in(func(net entry.Net) error {
		p, err := entry.FindPrimary(net)
		if p.List != nil {
			network = p.List.Name
		}
		return err
	})
	return network, err
}

// place adds the entry in a mode, and returns why the runtime would not call the plugin.
func (a agent) place(mode terms.Mode) (fault error) {
	_ = a.in(func(net entry.Net) error { return entry.In(mode).Place(net, text) }) // Fault says why not
	return a.fault(mode)
}

func (a agent) fault(mode terms.Mode) error {
	return a.in(func(net entry.Net) error { return entry.Fault(net, mode, text) })
}

func (a agent) called() error { return a.in(entry.Net.Called) }

func (a agent) remove() error {
	return a.in(func(net entry.Net) error { return entry.RemoveExcept(net, "") })
}
