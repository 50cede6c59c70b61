// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"google.golang.org/grpc/status"

	"github.com/capture-cni/capture-cni/install/bundle"
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/cri"
)

// Evidence is what a bundle has of the node, besides the judgement on it: the
// lists in outline, the plugin in place, until when its credentials are good,
// what the runtime has loaded. Each part is made of known fields; no file is
// copied.
func (n *Node) Evidence() []bundle.Part {
	return []bundle.Part{
		{Name: "node/plugin.txt", Write: n.writePlugins},
		{Name: "node/credentials.txt", Write: n.writeCredentials},
		{Name: "node/runtime.json", Write: n.writeLoaded},
		{Name: "node/lists.jsonl", Write: n.writeLists},
	}
}

func (n *Node) writePlugins(ctx context.Context, out io.Writer) error {
	var errs []error
	for _, folder := range n.settings.BinDirs {
		path := n.settings.at(folder) + "/" + binaryName
		info, err := os.Stat(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		version := "unknown"
		if build, err := buildinfo.ReadFile(path); err == nil {
			version = bundle.Plain(build.Main.Version) + ", " + bundle.Plain(build.GoVersion)
		}
		fmt.Fprintf(out, "%s/%s: %s, %d bytes, %s, version %s, runs: %s\n", folder, binaryName, info.Mode(), info.Size(),
			info.ModTime().UTC().Format(time.RFC3339), version, yesOr(outcome(tryPlugin(ctx, path))))
	}
	return errors.Join(errs...)
}

// outcome is why a program did not run as a plugin, without what it printed.
func outcome(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return errors.New(exit.ProcessState.String())
	}
	if failed, ok := errors.AsType[*os.PathError](err); ok {
		return failed
	}
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return errors.New("it does not answer as a plugin")
	}
	return err
}

func (n *Node) writeCredentials(_ context.Context, out io.Writer) error {
	kubeconfig, err := n.credentials.fault()
	fmt.Fprintf(out, "kubeconfig  %s\nusable      %s\n", kubeconfig, yesOr(err))
	if token, good := n.credentials.currentToken(); token != "" {
		fmt.Fprintf(out, "token       issued %s, ends %s\n", good.issued.UTC().Format(time.RFC3339), good.expires.UTC().Format(time.RFC3339))
	}
	ca, err := os.ReadFile(n.settings.at(filepath.Dir(kubeconfig)) + "/" + caName)
	if err == nil {
		fmt.Fprintf(out, "CA          ends %s\n", firstEnd(ca).UTC().Format(time.RFC3339))
	}
	return err
}

func yesOr(err error) string {
	if err != nil {
		return "no: " + err.Error()
	}
	return "yes"
}

// loadedEvidence is what the runtime says of itself and of the lists that it has
// loaded.
type loadedEvidence struct {
	Name       string             `json:"name"`
	Version    string             `json:"version"`
	ConfDir    string             `json:"confDir"`
	BinDirs    []string           `json:"binDirs"`
	MaxConfNum int                `json:"maxConfNum"`
	Networks   []conflist.Outline `json:"networks"`
}

func (n *Node) writeLoaded(ctx context.Context, out io.Writer) error {
	if n.runtime == nil {
		return errors.New("no CRI socket: set --cri-socket")
	}
	version, err := n.runtime.Version(ctx)
	if err != nil {
		return fmt.Errorf("asking the runtime for its version: %s", status.Code(err))
	}
	e := loadedEvidence{Name: bundle.Plain(version.Name), Version: bundle.Plain(version.Version), BinDirs: []string{}, Networks: []conflist.Outline{}}
	loaded, err := n.runtime.CNIConfig(ctx)
	if err != nil && !errors.Is(err, cri.ErrNoConfig) {
		err = errors.New("asking the runtime for its status: no answer that can be read")
	}
	e.ConfDir, e.MaxConfNum = bundle.Plain(loaded.PluginConfDir), loaded.PluginMaxConfNum
	for _, dir := range loaded.PluginDirs {
		e.BinDirs = append(e.BinDirs, bundle.Plain(dir))
	}
	for _, network := range loaded.Networks {
		outline, outlineErr := conflist.OutlineOf([]byte(network.Config.Source))
		err = errors.Join(err, outlineErr)
		e.Networks = append(e.Networks, outline)
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return errors.Join(err, encoder.Encode(e))
}
