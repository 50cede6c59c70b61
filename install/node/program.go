// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/host"
)

// Program is an executable that the agent installs. Programs are large, so no function reads a whole
// one into memory.
type Program struct {
	Name string
	copy string // path of the agent's copy
	Try  func(ctx context.Context, path string) error
}

// programs returns the programs to install next to the runtime's plugins: the plugin and, if the node
// should have credentials, capture-cni-lookup. The plugin comes last, because it executes
// capture-cni-lookup.
func programs(s Settings) []Program {
	plugin := Program{conflist.PluginType, s.Binary, s.Execute.tryPlugin}
	if !s.Credentials.OnNode {
		return []Program{plugin}
	}
	return []Program{{config.LookupProgram, filepath.Join(filepath.Dir(s.Binary), config.LookupProgram), s.Execute.tryVersion}, plugin}
}

// installPrograms installs the programs that a directory lacks, or that differ there from the agent's
// copies. It also copies each newly installed program to the state directory, and updates
// config.DirectoriesFile.
func installPrograms(ctx context.Context, s Settings, bin, state *host.Dir, log *slog.Logger) error {
	errs := []error{bin.ClearTemps(), listDirectories(s, bin)}
	for _, p := range programs(s) {
		changed, err := p.install(ctx, bin, state)
		errs = append(errs, err)
		if !changed {
			continue
		}
		log.Info("installed a program", "name", p.Name, "directory", bin.Path())
		if err := p.keepLastGood(state); err != nil {
			log.Warn("keeping a copy of a program failed: if a later version does not run, the agent can't go back to this one",
				"name", p.Name, "error", err)
		}
	}
	return errors.Join(errs...)
}

// programsFault returns nil if a directory's programs and its config.DirectoriesFile are correct, and
// otherwise the reason.
func programsFault(s Settings, bin *host.Dir) error {
	errs := []error{directoriesFault(s, bin)}
	for _, p := range programs(s) {
		errs = append(errs, p.fault(bin))
	}
	return errors.Join(errs...)
}

// install replaces a directory's program if it is missing or differs from the agent's copy. It first
// executes the new program. If the new program fails or can't be written, and the old one does not run,
// either, install restores the last copy that worked.
func (p Program) install(ctx context.Context, bin, state *host.Dir) (changed bool, err error) {
	if err := p.fault(bin); !errors.Is(err, errDiffers) && !host.IsAbsent(err) {
		return false, err
	}
	content, err := p.open()
	if err != nil {
		return false, err
	}
	defer content.Close()
	if err := p.replace(ctx, bin, content); err != nil {
		return false, errors.Join(err, p.restore(ctx, bin, state))
	}
	return true, nil
}

// restore replaces a program that does not run with the last copy that ran.
func (p Program) restore(ctx context.Context, bin, state *host.Dir) error {
	if p.Try(ctx, bin.Path()+"/"+p.Name) == nil {
		return nil
	}
	good, err := state.Open(lastGood(p.Name))
	if host.IsAbsent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	defer good.Close()
	return p.replace(ctx, bin, good)
}

func (p Program) replace(ctx context.Context, bin *host.Dir, content io.Reader) error {
	return bin.Replace(p.Name, content, 0o755, func(path string) error { return p.Try(ctx, path) })
}

// lastGood returns the name of a program's last copy that worked.
func lastGood(program string) string { return program + ".last-good" }

// keepLastGood copies a program that runs to the state directory.
func (p Program) keepLastGood(state *host.Dir) error {
	content, err := p.open()
	if err != nil {
		return err
	}
	defer content.Close()
	return state.Replace(lastGood(p.Name), content, 0o600, nil)
}

func (p Program) open() (*os.File, error) {
	file, err := host.Open(p.copy)
	if err != nil {
		return nil, fmt.Errorf("reading the agent's copy of %s: %w", p.Name, err)
	}
	return file, nil
}

var errDiffers = errors.New("differs from the agent's copy")

// fault returns why a directory's program must be replaced or can't be compared, or nil.
func (p Program) fault(bin *host.Dir) error {
	wanted, err := p.open()
	if err != nil {
		return err
	}
	defer wanted.Close()
	current, err := bin.Open(p.Name)
	if err != nil {
		return err
	}
	defer current.Close()
	same, err := sameBytes(current, wanted)
	info, statErr := current.Stat()
	if err = errors.Join(err, statErr); err == nil && (!same || info.Mode()&0o111 == 0) { // root, too, needs a bit to execute it
		err = fmt.Errorf("%s/%s %w", bin.Path(), p.Name, errDiffers)
	}
	return err
}

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
