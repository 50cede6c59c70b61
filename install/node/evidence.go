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
	"path/filepath"
	"strings"
	"time"

	"github.com/capture-cni/capture-cni/install/bundle"
)

// Evidence is what a bundle has of the node, besides the judgement on it: the
// lists as they are, the plugin in place, what is known of its credentials, what
// the runtime has loaded. It has no secret of ours: tokens are not even read out.
func (n *Node) Evidence() []bundle.Part {
	parts := []bundle.Part{
		{Name: "node/plugin.txt", Write: n.writePlugins},
		{Name: "node/credentials.txt", Write: n.writeCredentials},
		{Name: "node/runtime.json", Write: n.writeLoaded},
	}
	lists, err := n.lists()
	if err != nil {
		return append(parts, bundle.Part{Name: "lists", Write: func(context.Context, io.Writer) error { return err }})
	}
	for _, name := range lists {
		parts = append(parts, bundle.Part{Name: "lists/" + name, Write: func(_ context.Context, out io.Writer) error { return n.writeList(name, out) }})
	}
	return parts
}

// lists names the runtime's lists, and those that somebody has put out of use.
func (n *Node) lists() (names []string, err error) {
	net, err := n.open(n.settings.NetDir)
	if err != nil {
		return nil, err
	}
	all, err := net.Names()
	for _, name := range all {
		if strings.Contains(name, ".conf") || strings.HasSuffix(name, ".json") {
			names = append(names, name)
		}
	}
	dropIns, dropInErr := filepath.Glob(n.settings.at(n.settings.NetDir) + "/*/*.conf*")
	for _, path := range dropIns {
		names = append(names, filepath.Base(filepath.Dir(path))+"/"+filepath.Base(path))
	}
	return names, errors.Join(err, dropInErr, net.Close())
}

// writeList takes a file only: a pipe would never end.
func (n *Node) writeList(name string, out io.Writer) error {
	path := n.settings.at(n.settings.NetDir) + "/" + name
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return errors.Join(errors.New("it is no file"), err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading a list: %w", err)
	}
	_, err = out.Write(content)
	return err
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
			version = build.Main.Version + ", " + build.GoVersion
		}
		fmt.Fprintf(out, "%s/%s: %s, %d bytes, %s, version %s, runs: %s\n", folder, binaryName, info.Mode(), info.Size(),
			info.ModTime().UTC().Format(time.RFC3339), version, yesOr(tryPlugin(ctx, path)))
	}
	return errors.Join(errs...)
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

func (n *Node) writeLoaded(ctx context.Context, out io.Writer) error {
	if n.runtime == nil {
		return errors.New("there is no runtime to ask")
	}
	version, err := n.runtime.service.Version(ctx, "")
	if err != nil {
		return fmt.Errorf("asking the runtime for its version: %w", err)
	}
	loaded, err := n.runtime.CNIConfig(ctx)
	told := struct {
		Name, Version string
		CNIConfig     CNIConfig
	}{version.RuntimeName, version.RuntimeVersion, loaded}
	return errors.Join(err, json.NewEncoder(out).Encode(told))
}
