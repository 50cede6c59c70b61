// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/host"
)

const (
	binaryName   = conflist.PluginType
	lastGoodName = "capture-cni.last-good"

	tryTimeout = 10 * time.Second
)

// installBinary makes a folder hold the plugin. It counts only once it has
// answered a call from where it is; an old one stays until then, and where even
// that one is broken, the last that worked takes its place.
func installBinary(ctx context.Context, bin, state *host.Dir, plugin []byte) (changed bool, err error) {
	if err := bin.ClearTemps(); err != nil {
		return false, err
	}
	current, err := bin.Read(binaryName)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err == nil && bytes.Equal(current, plugin) {
		return false, nil
	}
	try := func(path string) error { return tryPlugin(ctx, path) }
	err = bin.Replace(binaryName, plugin, host.As(0o755), try)
	if err == nil {
		return true, nil
	}
	return false, errors.Join(err, putBack(ctx, bin, state, current))
}

// putBack is for a new plugin that does not run beside an old one that does not
// either.
func putBack(ctx context.Context, bin, state *host.Dir, current []byte) error {
	good, err := state.Read(lastGoodName)
	if err != nil || bytes.Equal(good, current) {
		return nil // there is none, or it is in place
	}
	if current != nil && tryPlugin(ctx, bin.Path()+"/"+binaryName) == nil {
		return nil
	}
	return bin.Replace(binaryName, good, host.As(0o755), func(path string) error { return tryPlugin(ctx, path) })
}

// keepLastGood remembers a plugin that runs.
func keepLastGood(state *host.Dir, plugin []byte) error {
	if kept, err := state.Read(lastGoodName); err == nil && bytes.Equal(kept, plugin) {
		return nil
	}
	return state.Replace(lastGoodName, plugin, host.As(0o600), nil)
}

// tryPlugin asks a plugin for its versions, as a runtime would.
func tryPlugin(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	for {
		command := exec.CommandContext(ctx, path)
		command.Env = []string{"CNI_COMMAND=VERSION"}
		command.Stdin = strings.NewReader(`{"cniVersion":"1.0.0"}`)
		out, err := command.Output()
		// Another process of ours that is being started at this moment holds
		// the file open for writing for an instant.
		if errors.Is(err, syscall.ETXTBSY) && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
			continue
		}
		if err != nil {
			return fmt.Errorf("the plugin does not run: %w", err)
		}
		if !bytes.Contains(out, []byte("supportedVersions")) {
			return fmt.Errorf("the plugin does not answer as one: %q", out)
		}
		return nil
	}
}

// binaryFault says why a folder's plugin is not the wanted one, nil if it is.
func binaryFault(bin *host.Dir, plugin []byte) error {
	current, err := bin.Read(binaryName)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s has no %s", bin.Path(), binaryName)
	case err != nil:
		return err
	case !bytes.Equal(current, plugin):
		return fmt.Errorf("%s in %s is another one than the agent brings", binaryName, bin.Path())
	}
	return nil
}
