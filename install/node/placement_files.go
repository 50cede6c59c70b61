// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/capture-cni/capture-cni/install/host"
)

// dropInName is the file of our own, of either kind.
const dropInName = "capture-cni.conf"

// dropIn puts our entry into the folder that libcni (1.3 and newer) reads the
// rest of a list from, and which bears the network's name. Runtimes read it with
// the list but watch only the folder above, which therefore is stirred.
type dropIn struct{}

func (dropIn) network(net *host.Dir) (string, error) {
	p, err := findPrimary(net)
	if err != nil {
		return "", err
	}
	if p.conf || p.list.LoadOnlyInlinedPlugins {
		return "", fmt.Errorf("%s lets no drop-in be loaded: use mode %q", p.file, Insert)
	}
	return p.list.Name, nil
}

func (d dropIn) fault(net *host.Dir, entry []byte) error {
	network, err := d.network(net)
	if err != nil {
		return err
	}
	folder, err := net.Sub(network, false)
	if err != nil {
		return err
	}
	current, err := folder.Read(dropInName)
	if err == nil && !bytes.Equal(current, lines(entry)) {
		err = fmt.Errorf("%s in %s is not what it should be", dropInName, folder.Path())
	}
	return errors.Join(err, folder.Close())
}

func (d dropIn) place(net *host.Dir, entry []byte) error {
	network, err := d.network(net)
	if err != nil {
		return err
	}
	folder, err := net.Sub(network, true)
	if err != nil {
		return err
	}
	if err := folder.ClearTemps(); err != nil {
		return errors.Join(err, folder.Close())
	}
	if current, readErr := folder.Read(dropInName); readErr != nil || !bytes.Equal(current, lines(entry)) {
		err = folder.Replace(dropInName, lines(entry), host.As(0o600), nil)
	}
	return errors.Join(err, folder.Close(), net.TriggerWatch())
}

func (dropIn) found(net *host.Dir) (found bool, err error) {
	err = eachFolder(net, func(_ string, folder *host.Dir) error {
		has, err := folder.Has(dropInName)
		found = found || has
		return err
	})
	return found, err
}

func (dropIn) remove(net *host.Dir) error {
	return eachFolder(net, func(name string, folder *host.Dir) error {
		clearErr := folder.ClearTemps()
		if has, err := folder.Has(dropInName); err != nil || !has {
			return errors.Join(clearErr, err)
		}
		return errors.Join(clearErr, folder.Remove(dropInName), net.RemoveDir(name), net.TriggerWatch())
	})
}

// eachFolder goes through all folders within one: the network may have had
// another name.
func eachFolder(net *host.Dir, do func(name string, folder *host.Dir) error) error {
	names, err := net.Directories()
	errs := []error{err}
	for _, name := range names {
		folder, err := net.Sub(name, false)
		if err != nil {
			continue // gone meanwhile, or a link
		}
		errs = append(errs, do(name, folder), folder.Close())
	}
	return errors.Join(errs...)
}

// multus is a configuration of our own that network attachments name.
type multus struct{}

// wanted is our entry as a whole configuration.
func (multus) wanted(entry []byte) []byte {
	return lines(append([]byte(`{"cniVersion":"1.0.0","name":"capture-cni",`), bytes.TrimSpace(entry)[1:]...))
}

func (m multus) fault(net *host.Dir, entry []byte) error {
	current, err := net.Read(dropInName)
	if err == nil && !bytes.Equal(current, m.wanted(entry)) {
		err = fmt.Errorf("%s in %s is not what it should be", dropInName, net.Path())
	}
	return err
}

func (m multus) place(net *host.Dir, entry []byte) error {
	if m.fault(net, entry) == nil {
		return nil
	}
	return net.Replace(dropInName, m.wanted(entry), host.As(0o600), nil)
}

func (multus) found(net *host.Dir) (bool, error) { return net.Has(dropInName) }

func (multus) remove(net *host.Dir) error { return net.Remove(dropInName) }

// lines indents a document that was made here.
func lines(document []byte) []byte {
	var out bytes.Buffer
	if json.Indent(&out, document, "", "  ") != nil {
		return document
	}
	out.WriteByte('\n')
	return out.Bytes()
}
