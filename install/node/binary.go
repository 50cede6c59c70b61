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

// binaries are the agent's copy of the plugin and the directory of the last copy that
// worked. The file is large: no function reads it into memory.
type binaries struct {
	plugin string // path
	state  *host.Dir
}

// install replaces a directory's plugin if it differs. The new one takes its place only
// after it has answered a call. If it fails and the old one fails as well, the last
// copy that worked is restored.
func (b binaries) install(ctx context.Context, bin *host.Dir) (changed bool, err error) {
	if err := bin.ClearTemps(); err != nil {
		return false, err
	}
	if err := b.fault(bin); !errors.Is(err, errDiffers) && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	plugin, err := b.open()
	if err != nil {
		return false, err
	}
	defer plugin.Close()
	if err := replacePlugin(ctx, bin, plugin); err != nil {
		return false, errors.Join(err, b.restore(ctx, bin))
	}
	return true, nil
}

// restore replaces a plugin that does not run by the last copy that did.
func (b binaries) restore(ctx context.Context, bin *host.Dir) error {
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
	return replacePlugin(ctx, bin, good)
}

func replacePlugin(ctx context.Context, bin *host.Dir, content io.Reader) error {
	return bin.ReplaceFrom(binaryName, content, host.As(0o755), func(path string) error { return tryPlugin(ctx, path) })
}

// keepLastGood copies a plugin that runs to the state directory.
func (b binaries) keepLastGood() error {
	plugin, err := b.open()
	if err != nil {
		return err
	}
	defer plugin.Close()
	return b.state.ReplaceFrom(lastGoodName, plugin, host.As(0o600), nil)
}

func (b binaries) open() (*os.File, error) {
	plugin, err := os.Open(b.plugin)
	if err != nil {
		return nil, fmt.Errorf("reading the agent's copy of the plugin: %w", err)
	}
	return plugin, nil
}

var errDiffers = errors.New("differs from the agent's copy")

// fault returns why a directory's plugin must be replaced, or can't be compared.
func (b binaries) fault(bin *host.Dir) error {
	plugin, err := b.open()
	if err != nil {
		return err
	}
	defer plugin.Close()
	current, err := bin.Open(binaryName)
	if err != nil {
		return err
	}
	defer current.Close()
	same, err := sameBytes(current, plugin)
	if err == nil && !same {
		err = fmt.Errorf("%s/%s %w", bin.Path(), binaryName, errDiffers)
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
			return false, fmt.Errorf("comparing the plugin with the agent's copy: %w", err)
		}
	}
}

func isEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

// tryPlugin calls VERSION, as a runtime does.
func tryPlugin(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	out, err := callPlugin(ctx, path, []byte(`{"cniVersion":"1.0.0"}`), "CNI_COMMAND=VERSION")
	if err != nil {
		return fmt.Errorf("the plugin does not run: %w", err)
	}
	if !bytes.Contains(out, []byte("supportedVersions")) {
		return fmt.Errorf("the plugin does not run: its response to VERSION has no supportedVersions: %q", out)
	}
	return nil
}

// callPlugin calls a plugin as a runtime does. The error of a failed call is the one
// that the plugin reports.
func callPlugin(ctx context.Context, path string, conf []byte, environment ...string) (out []byte, err error) {
	for {
		command := exec.CommandContext(ctx, path)
		command.Env = environment
		command.Stdin = bytes.NewReader(conf)
		out, err = command.Output()
		// Another child of the agent holds the file open for writing between
		// its fork and its exec.
		if errors.Is(err, syscall.ETXTBSY) && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(time.Millisecond):
			}
			continue
		}
		var reported types.Error
		if err != nil && json.Unmarshal(out, &reported) == nil && reported.Msg != "" {
			err = &reported
		}
		return out, err
	}
}
