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

	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/credentials"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/install/host"
	"github.com/capture-cni/capture-cni/install/report"
)

// Evidence returns the parts of a support bundle that describe the node: the installed programs, the
// expiry of the plugin's credentials, the configuration that the runtime has loaded, and an outline of the
// conflists. Each part contains only known fields, and no copy of a file.
func (n *Node) Evidence() []report.BundlePart {
	return []report.BundlePart{
		{Name: "node/programs.jsonl", Write: n.writePrograms},
		{Name: "node/credentials.json", Write: n.writeCredentials},
		{Name: "node/runtime.json", Write: n.writeLoaded},
		{Name: "node/lists.jsonl", Write: n.writeLists},
	}
}

type programEvidence struct {
	Path     string    `json:"path"`
	Mode     string    `json:"mode"`
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
	Version  string    `json:"version,omitempty"`
	Go       string    `json:"go,omitempty"`
	Runs     bool      `json:"runs"`
	Fault    string    `json:"fault,omitempty"` // why the program does not run
}

// writePrograms writes a line of JSON for each installed program.
func (n *Node) writePrograms(ctx context.Context, out io.Writer) error {
	var errs []error
	encoder := json.NewEncoder(out)
	for _, directory := range n.Settings.BinDirs {
		for _, p := range programs(n.Settings) {
			evidence, err := n.programEvidence(ctx, directory, p)
			if err == nil {
				err = encoder.Encode(evidence)
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (n *Node) programEvidence(ctx context.Context, directory string, p Program) (e programEvidence, err error) {
	path := n.Settings.At(directory) + "/" + p.Name
	file, err := host.Open(path)
	if err != nil {
		return e, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return e, err
	}
	e = programEvidence{
		Path:     directory + "/" + p.Name,
		Mode:     info.Mode().String(),
		Size:     info.Size(),
		Modified: info.ModTime().UTC(),
		Runs:     true,
	}
	if build, err := buildinfo.Read(file); err == nil {
		e.Version, e.Go = report.Plain(build.Main.Version), report.Plain(build.GoVersion)
	}
	if err := outcome(p.Try(ctx, path)); err != nil {
		e.Runs, e.Fault = false, err.Error()
	}
	return e, nil
}

// outcome returns the reason for which a program does not run, without the program's output.
func outcome(err error) error {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return errors.New(exit.ProcessState.String())
	}
	if failed, ok := errors.AsType[*os.PathError](err); ok {
		return failed
	}
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return errors.New("its response is not the expected one")
	}
	return err
}

type credentialEvidence struct {
	Wanted      bool      `json:"wanted"` // the credentials should be on the node
	Kubeconfig  string    `json:"kubeconfig"`
	Fault       string    `json:"fault,omitempty"`      // why the credentials can't be used, or are not removed yet
	TokenIssued time.Time `json:"tokenIssued,omitzero"` // of the token that expires last
	TokenEnds   time.Time `json:"tokenEnds,omitzero"`
	CAEnds      time.Time `json:"caEnds,omitzero"` // expiry of the first certificate that expires
}

func (n *Node) writeCredentials(_ context.Context, out io.Writer) error {
	kubeconfig, err := n.credentialsFault()
	e := credentialEvidence{Wanted: n.Settings.Credentials.OnNode, Kubeconfig: kubeconfig}
	if err != nil {
		e.Fault = err.Error()
	}
	var caErr error
	if e.Wanted {
		if _, token, valid := n.Store.CurrentToken(); token != "" {
			e.TokenIssued, e.TokenEnds = valid.Issued.UTC(), valid.Expires.UTC()
		}
		var ca []byte
		ca, caErr = host.ReadFile(n.Settings.At(filepath.Dir(kubeconfig)) + "/" + credentials.CAName)
		e.CAEnds = credentials.FirstExpiry(ca).UTC()
	}
	return errors.Join(caErr, json.NewEncoder(out).Encode(e))
}

// loadedEvidence contains the runtime's name and version, its CNI settings, and the lists that it has
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
	if n.Runtime == nil {
		return errors.New("--cri-socket is none")
	}
	version, err := n.Runtime.Version(ctx)
	if err != nil {
		return fmt.Errorf("reading the runtime's version: %s", status.Code(err))
	}
	e := loadedEvidence{
		Name:     report.Plain(version.Name),
		Version:  report.Plain(version.Version),
		BinDirs:  []string{},
		Networks: []conflist.Outline{},
	}
	loaded, err := n.Runtime.CNIConfig(ctx)
	if err != nil && !errors.Is(err, cri.ErrNoConfig) {
		err = errors.New("reading the runtime's status: the request failed")
	}
	e.ConfDir, e.MaxConfNum = report.Plain(loaded.PluginConfDir), loaded.PluginMaxConfNum
	for _, dir := range loaded.PluginDirs {
		e.BinDirs = append(e.BinDirs, report.Plain(dir))
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
