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
	"github.com/capture-cni/capture-cni/install/credentials"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/programs"
)

// Evidence returns the parts of a support bundle that describe the node: the installed
// plugin, the expiry of its credentials, what the runtime has loaded, and an outline of
// the conflists. Each part contains known fields only; no file is copied.
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
	for _, directory := range n.settings.BinDirs {
		for _, p := range programs.Of(n.settings, nil) {
			errs = append(errs, n.writeProgram(ctx, directory, p, out))
		}
	}
	return errors.Join(errs...)
}

func (n *Node) writeProgram(ctx context.Context, directory string, p programs.Program, out io.Writer) error {
	path := n.settings.At(directory) + "/" + p.Name
	file, err := host.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	version := "unknown"
	if build, err := buildinfo.Read(file); err == nil {
		version = bundle.Plain(build.Main.Version) + ", " + bundle.Plain(build.GoVersion)
	}
	fmt.Fprintf(out, "%s/%s: %s, %d bytes, %s, version %s, runs: %s\n", directory, p.Name, info.Mode(), info.Size(),
		info.ModTime().UTC().Format(time.RFC3339), version, yesOrReason(outcome(p.Try(ctx, path))))
	return nil
}

// outcome returns why a plugin does not run, without its output.
func outcome(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return errors.New(exit.ProcessState.String())
	}
	if failed, ok := errors.AsType[*os.PathError](err); ok {
		return failed
	}
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return errors.New("not the response of a plugin")
	}
	return err
}

func (n *Node) writeCredentials(_ context.Context, out io.Writer) error {
	kubeconfig, err := n.credentialsFault()
	if !n.settings.Credentials.OnNode {
		fmt.Fprintf(out, "credentials none: --token-on-node is false\nremoved     %s\n", yesOrReason(err))
		return nil
	}
	fmt.Fprintf(out, "kubeconfig  %s\nusable      %s\n", kubeconfig, yesOrReason(err))
	if _, token, valid := n.credentials.CurrentToken(); token != "" {
		fmt.Fprintf(out, "token       issued %s, ends %s\n", valid.Issued.UTC().Format(time.RFC3339), valid.Expires.UTC().Format(time.RFC3339))
	}
	ca, err := host.ReadFile(n.settings.At(filepath.Dir(kubeconfig)) + "/" + credentials.CAName)
	if err == nil {
		fmt.Fprintf(out, "CA          ends %s\n", credentials.FirstExpiry(ca).UTC().Format(time.RFC3339))
	}
	return err
}

func yesOrReason(err error) string {
	if err != nil {
		return "no: " + err.Error()
	}
	return "yes"
}

// loadedEvidence is what the runtime reports of itself and of the lists it has loaded.
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
		return errors.New("--cri-socket is none")
	}
	version, err := n.runtime.Version(ctx)
	if err != nil {
		return fmt.Errorf("reading the runtime's version: %s", status.Code(err))
	}
	e := loadedEvidence{Name: bundle.Plain(version.Name), Version: bundle.Plain(version.Version), BinDirs: []string{}, Networks: []conflist.Outline{}}
	loaded, err := n.runtime.CNIConfig(ctx)
	if err != nil && !errors.Is(err, cri.ErrNoConfig) {
		err = errors.New("reading the runtime's status: malformed response")
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
