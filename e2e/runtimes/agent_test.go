// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"errors"
	goruntime "runtime"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/report"
)

var text = []byte(`{"type":"capture-cni","kubeconfig":"/var/lib/capture-cni/kubeconfig"}`)

// agent is what the agent makes of a runtime's directories.
type agent struct {
	runtime string // as the runtime names itself; "" if it does not answer
	node
}

// in calls do with the directory, without the capability to read any file, as in the agent's pod.
func (a agent) in(do func(conflist.Net) error) (err error) {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var held [2]unix.CapUserData
	if err := unix.Capget(&header, &held[0]); err != nil {
		return err
	}
	fewer := held
	fewer[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
	if err := unix.Capset(&header, &fewer[0]); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Capset(&header, &held[0])) }()
	net, err := host.OpenDir(a.netDir, nil)
	if err != nil {
		return err
	}
	loader := conflist.Loader{
		Runtime: report.Runtime{Name: a.runtime, Version: "2.1.0"}, BinDirs: a.bins[:1], SeesAll: a.runtime != "" && a.seesAll(), Most: 1 + a.most, Network: a.network,
	}
	return errors.Join(do(conflist.Net{Dir: net, Loader: loader}), net.Close())
}

// finds returns the networks one of which the runtime would load without the agent.
func (a agent) finds() (networks []string, err error) {
	err = a.in(func(net conflist.Net) error {
		found, err := conflist.Primaries(net)
		for _, p := range found {
			networks = append(networks, p.List.Name)
			err = errors.Join(err, p.CheckVersion())
		}
		return err
	})
	return networks, err
}

// place adds the entry in a mode, and returns why the runtime would not call the plugin.
func (a agent) place(mode report.Mode) (fault error) {
	_ = a.in(func(net conflist.Net) error { return conflist.In(mode).Place(net, text) }) // Fault says why not
	return a.fault(mode)
}

func (a agent) fault(mode report.Mode) error {
	return a.in(func(net conflist.Net) error { return conflist.Fault(net, mode, text) })
}

func (a agent) called() error { return a.in(conflist.Net.Called) }

func (a agent) remove() error {
	return a.in(func(net conflist.Net) error { return conflist.RemoveExcept(net, "") })
}
