// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/capture-cni/capture-cni/install/host"
)

// dropInName is the file of a drop-in, and of mode multus.
const dropInName = "capture-cni.conf"

// dropIn writes the entry into the directory named after the network, from which libcni
// (1.3 and newer) reads further plugins of the list. Runtimes watch only the directory
// above, so that its watch is triggered.
type dropIn struct{}

func (dropIn) network(net *host.Dir) (string, error) {
	p, err := findPrimary(net)
	if err != nil {
		return "", err
	}
	if p.conf || p.list.LoadOnlyInlinedPlugins {
		return "", fmt.Errorf("%s excludes drop-ins: use mode %q", p.file, Insert)
	}
	return p.list.Name, nil
}

func (d dropIn) fault(net *host.Dir, entry []byte) error {
	network, err := d.network(net)
	if err != nil {
		return err
	}
	directory, err := net.Sub(network, false)
	if err != nil {
		return err
	}
	return errors.Join(fileFault(directory, dropInName, indented(entry)), directory.Close())
}

func (d dropIn) place(net *host.Dir, entry []byte) error {
	network, err := d.network(net)
	if err != nil {
		return err
	}
	directory, err := net.Sub(network, true)
	if err != nil {
		return err
	}
	if err := directory.ClearTemps(); err != nil {
		return errors.Join(err, directory.Close())
	}
	return errors.Join(ensureFile(directory, dropInName, indented(entry)), directory.Close(), net.TriggerWatch())
}

func (dropIn) found(net *host.Dir) (found bool, err error) {
	err = eachSubdirectory(net, func(_ string, directory *host.Dir) error {
		has, err := directory.Has(dropInName)
		found = found || has
		return err
	})
	return found, err
}

func (dropIn) remove(net *host.Dir) error {
	return eachSubdirectory(net, func(name string, directory *host.Dir) error {
		clearErr := directory.ClearTemps()
		if has, err := directory.Has(dropInName); err != nil || !has {
			return errors.Join(clearErr, err)
		}
		return errors.Join(clearErr, directory.Remove(dropInName), net.RemoveDir(name), net.TriggerWatch())
	})
}

// eachSubdirectory calls do with each subdirectory: the network may have been renamed.
func eachSubdirectory(net *host.Dir, do func(name string, directory *host.Dir) error) error {
	names, err := net.Directories()
	errs := []error{err}
	for _, name := range names {
		directory, err := net.Sub(name, false)
		if err != nil {
			continue // removed meanwhile, or a link
		}
		errs = append(errs, do(name, directory), directory.Close())
	}
	return errors.Join(errs...)
}

// multus writes a configuration that network attachments refer to.
type multus struct{}

// wanted returns the entry as a configuration of its own.
func (multus) wanted(entry []byte) []byte {
	return indented(append([]byte(`{"cniVersion":"1.0.0","name":"capture-cni",`), bytes.TrimSpace(entry)[1:]...))
}

func (m multus) fault(net *host.Dir, entry []byte) error {
	return fileFault(net, dropInName, m.wanted(entry))
}

func (m multus) place(net *host.Dir, entry []byte) error {
	return ensureFile(net, dropInName, m.wanted(entry))
}

func (multus) found(net *host.Dir) (bool, error) { return net.Has(dropInName) }

func (multus) remove(net *host.Dir) error { return net.Remove(dropInName) }

// fileFault returns why a file of the agent's own does not have the content.
func fileFault(directory *host.Dir, name string, want []byte) error {
	current, err := directory.Read(name)
	if err == nil && !bytes.Equal(current, want) {
		err = fmt.Errorf("%s/%s is outdated", directory.Path(), name)
	}
	return err
}

// indented returns a JSON document with indentation.
func indented(document []byte) []byte {
	var out bytes.Buffer
	if json.Indent(&out, document, "", "  ") != nil {
		return document
	}
	out.WriteByte('\n')
	return out.Bytes()
}
