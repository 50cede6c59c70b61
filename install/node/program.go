// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/host"
)

const binaryName = conflist.PluginType

// program is an executable that the agent installs: its copy, and the directory of the
// last copy that worked. The file is large: no function reads it into memory.
type program struct {
	name  string
	copy  string // path
	try   func(ctx context.Context, path string) error
	state *host.Dir
}

// programs returns what belongs next to the runtime's plugins. The plugin comes last:
// it executes the other one.
func (s Settings) programs(state *host.Dir) []program {
	plugin := program{binaryName, s.Binary, tryPlugin, state}
	if !s.Credentials.OnNode {
		return []program{plugin}
	}
	return []program{{config.LookupProgram, filepath.Join(filepath.Dir(s.Binary), config.LookupProgram), tryVersion, state}, plugin}
}

// install replaces a directory's program if it differs. The new one takes its place only
// after it has run. If it fails and the old one fails as well, the last copy that worked
// is restored.
func (p program) install(ctx context.Context, bin *host.Dir) (changed bool, err error) {
	if err := bin.ClearTemps(); err != nil {
		return false, err
	}
	if err := p.fault(bin); !errors.Is(err, errDiffers) && !host.IsAbsent(err) {
		return false, err
	}
	content, err := p.open()
	if err != nil {
		return false, err
	}
	defer content.Close()
	if err := p.replace(ctx, bin, content); err != nil {
		return false, errors.Join(err, p.restore(ctx, bin))
	}
	return true, nil
}

// restore replaces a program that does not run by the last copy that did.
func (p program) restore(ctx context.Context, bin *host.Dir) error {
	if p.try(ctx, bin.Path()+"/"+p.name) == nil {
		return nil
	}
	good, err := p.state.Open(lastGood(p.name))
	if host.IsAbsent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer good.Close()
	return p.replace(ctx, bin, good)
}

func (p program) replace(ctx context.Context, bin *host.Dir, content io.Reader) error {
	return bin.ReplaceFrom(p.name, content, host.As(0o755), func(path string) error { return p.try(ctx, path) })
}

// lastGood returns the name of a program's last copy that worked.
func lastGood(program string) string { return program + ".last-good" }

// keepLastGood copies a program that runs to the state directory.
func (p program) keepLastGood() error {
	content, err := p.open()
	if err != nil {
		return err
	}
	defer content.Close()
	return p.state.ReplaceFrom(lastGood(p.name), content, host.As(0o600), nil)
}

func (p program) open() (*os.File, error) {
	file, err := host.Open(p.copy)
	if err != nil {
		return nil, fmt.Errorf("reading the agent's copy of %s: %w", p.name, err)
	}
	return file, nil
}

var errDiffers = errors.New("differs from the agent's copy")

// fault returns why a directory's program must be replaced, or can't be compared.
func (p program) fault(bin *host.Dir) error {
	wanted, err := p.open()
	if err != nil {
		return err
	}
	defer wanted.Close()
	current, err := bin.Open(p.name)
	if err != nil {
		return err
	}
	defer current.Close()
	same, err := sameBytes(current, wanted)
	if err == nil && !same {
		err = fmt.Errorf("%s/%s %w", bin.Path(), p.name, errDiffers)
	}
	return err
}

// sameBytes reports whether two files have the same content.
func sameBytes(a, b io.Reader) (bool, error) {
	left, right := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, errA := io.ReadFull(a, left)
		m, errB := io.ReadFull(b, right)
		if !bytes.Equal(left[:n], right[:m]) {
			return false, nil
		}
		if isEnd(errA) && isEnd(errB) {
			return true, nil
		}
		if err := errors.Join(errA, errB); err != nil {
			return false, fmt.Errorf("comparing a program with the agent's copy: %w", err)
		}
	}
}

func isEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
