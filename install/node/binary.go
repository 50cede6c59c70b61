// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/host"
)

const (
	binaryName   = conflist.PluginType
	lastGoodName = "capture-cni.last-good"

	tryTimeout = 10 * time.Second
)

// binaries are the plugin that the agent brings and the folder in which it
// keeps one that works. The file is large, and is never held in memory.
type binaries struct {
	plugin string // path
	state  *host.Dir
}

// install makes a folder hold the plugin. It counts only once it has answered a
// call from where it is; an old one stays until then, and where even that one
// is broken, the last that worked takes its place.
func (b binaries) install(ctx context.Context, bin *host.Dir) (changed bool, err error) {
	if err := bin.ClearTemps(); err != nil {
		return false, err
	}
	switch err := b.fault(bin); {
	case err == nil:
		return false, nil
	case !isDifferent(err):
		return false, err
	}
	plugin, err := os.Open(b.plugin)
	if err != nil {
		return false, fmt.Errorf("reading the plugin: %w", err)
	}
	defer plugin.Close()
	err = bin.ReplaceFrom(binaryName, plugin, host.As(0o755), func(path string) error { return tryPlugin(ctx, path) })
	if err != nil {
		return false, errors.Join(err, b.putBack(ctx, bin))
	}
	return true, nil
}

// putBack is for a new plugin that does not run beside an old one that does not
// either.
func (b binaries) putBack(ctx context.Context, bin *host.Dir) error {
	if tryPlugin(ctx, bin.Path()+"/"+binaryName) == nil {
		return nil
	}
	good, err := b.state.Open(lastGoodName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer good.Close()
	return bin.ReplaceFrom(binaryName, good, host.As(0o755), func(path string) error { return tryPlugin(ctx, path) })
}

// keepLastGood remembers a plugin that runs.
func (b binaries) keepLastGood() error {
	plugin, err := os.Open(b.plugin)
	if err != nil {
		return fmt.Errorf("reading the plugin: %w", err)
	}
	defer plugin.Close()
	return b.state.ReplaceFrom(lastGoodName, plugin, host.As(0o600), nil)
}

// different is a plugin that is missing, or not the wanted one.
type different string

func (d different) Error() string { return string(d) }

func isDifferent(err error) bool {
	_, ok := errors.AsType[different](err)
	return ok
}

// fault says why a folder's plugin is not the wanted one, nil if it is.
func (b binaries) fault(bin *host.Dir) error {
	plugin, err := os.Open(b.plugin)
	if err != nil {
		return fmt.Errorf("reading the plugin: %w", err)
	}
	defer plugin.Close()
	current, err := bin.Open(binaryName)
	if errors.Is(err, fs.ErrNotExist) {
		return different(fmt.Sprintf("%s has no %s", bin.Path(), binaryName))
	}
	if err != nil {
		return err
	}
	defer current.Close()
	same, err := sameBytes(current, plugin)
	if err == nil && !same {
		return different(fmt.Sprintf("%s in %s is another one than the agent brings", binaryName, bin.Path()))
	}
	return err
}

// sameBytes compares two files to their ends.
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
			return false, fmt.Errorf("comparing two plugins: %w", err)
		}
	}
}

func isEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// tryPlugin asks a plugin for its versions, as a runtime would.
func tryPlugin(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	out, err := callPlugin(ctx, path, []byte(`{"cniVersion":"1.0.0"}`), "CNI_COMMAND=VERSION")
	if err != nil {
		return fmt.Errorf("the plugin does not run: %w", err)
	}
	if !bytes.Contains(out, []byte("supportedVersions")) {
		return fmt.Errorf("the plugin does not answer as one: %q", out)
	}
	return nil
}

// callPlugin calls a plugin as a runtime would. What it answers to a call that
// fails is the error.
func callPlugin(ctx context.Context, path string, conf []byte, environment ...string) (out []byte, err error) {
	for {
		command := exec.CommandContext(ctx, path)
		command.Env = environment
		command.Stdin = bytes.NewReader(conf)
		out, err = command.Output()
		// Another process of ours that is being started at this moment holds
		// the file open for writing for an instant.
		if errors.Is(err, syscall.ETXTBSY) && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(time.Millisecond):
			}
			continue
		}
		var answer types.Error
		if err != nil && json.Unmarshal(out, &answer) == nil && answer.Msg != "" {
			err = &answer
		}
		return out, err
	}
}
