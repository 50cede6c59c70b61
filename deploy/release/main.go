// SPDX-License-Identifier: Apache-2.0

// Command release writes the files of a release into a directory: the programs for each platform with
// their licences, the list of the modules in them (SBOM), the chart, its default manifest, the schema
// of its values, and the checksums of all files. The command image must have written the image into this
// directory before. With the same version of Go, equal sources of one commit produce equal files.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/capture-cni/capture-cni/deploy/build"
)

func main() {
	out := flag.String("out", "", "directory to write to (required)")
	version := flag.String("version", "", "version in the files' names, such as 1.2.3 (required)")
	flag.Parse()
	if *out == "" || *version == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := release(ctx, *out, *version, archives); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release writes the files of a release. It must run in the project's root directory.
func release(ctx context.Context, out, version string, archives []archive) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	var contents sbom
	for _, a := range archives {
		files, err := a.build(ctx, version)
		if err != nil {
			return fmt.Errorf("building %s for %s/%s: %w", a.name, a.system, a.architecture, err)
		}
		if err := contents.add(a, version, files); err != nil {
			return err
		}
		name, content, err := a.pack(version, files)
		if err := errors.Join(err, write(out, name, content)); err != nil {
			return err
		}
	}
	list, err := contents.encode(version)
	if err := errors.Join(err, write(out, "capture-cni-"+version+".cdx.json", list), writeChart(out, version)); err != nil {
		return err
	}
	sums, err := checksums(out)
	if err != nil {
		return fmt.Errorf("computing the checksums: %w", err)
	}
	return write(out, sumsFile, sums)
}

// writeChart writes the chart, its default manifest, and the schema of its values, which editors use.
func writeChart(out, version string) error {
	files, err := build.Directory("deploy/chart", "capture-cni") // helm package would write the current time into the archive
	if err != nil {
		return fmt.Errorf("packing the chart: %w", err)
	}
	chart, packing := files.TarGzip()
	manifest, reading := os.ReadFile("deploy/capture-cni.yaml")
	return errors.Join(packing, reading,
		write(out, "capture-cni-"+version+".tgz", chart),
		write(out, "capture-cni-"+version+".values.schema.json", files["capture-cni/values.schema.json"].Content),
		write(out, "capture-cni-"+version+".yaml", manifest))
}

func write(directory, name string, content []byte) error {
	if err := os.WriteFile(filepath.Join(directory, name), content, 0o644); err != nil {
		return err
	}
	fmt.Println(filepath.Join(directory, name))
	return nil
}
