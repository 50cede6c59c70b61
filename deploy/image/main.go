// SPDX-License-Identifier: Apache-2.0

// Command image builds a container image of Go programs without Docker. It writes an OCI layout as a
// tar file, which runtimes can import. With the same version of Go, equal sources of one commit produce
// equal digests.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

const usage = `usage: image -out FILE -name NAME -version VERSION [-platforms LIST] PATH=PACKAGE…

Each PATH in the image is the program built from PACKAGE. The first PATH is the
entrypoint.
`

func main() {
	out := flag.String("out", "", "tarball to write (required)")
	name := flag.String("name", "", "name and tag of the image (required)")
	version := flag.String("version", "", "version of the programs, such as 1.2.3 (required)")
	platforms := flag.String("platforms", "linux/amd64,linux/arm64", "platforms to build for")
	flag.Usage = func() { fmt.Fprint(flag.CommandLine.Output(), usage); flag.PrintDefaults() }
	flag.Parse()
	programs, err := parse(flag.Args())
	if err != nil || *out == "" || *name == "" || *version == "" {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := write(ctx, *out, *name, *version, strings.Split(*platforms, ","), programs); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

type program struct{ path, source string }

func parse(args []string) ([]program, error) {
	var programs []program
	for _, arg := range args {
		path, source, ok := strings.Cut(arg, "=")
		if !ok || !strings.HasPrefix(path, "/") {
			return nil, fmt.Errorf("%q: expected /path=package", arg)
		}
		programs = append(programs, program{path, source})
	}
	if len(programs) == 0 {
		return nil, errors.New("expected at least one /path=package")
	}
	return programs, nil
}

func write(ctx context.Context, out, name, version string, platforms []string, programs []program) error {
	index := v1.ImageIndex(empty.Index)
	for _, text := range platforms {
		platform, err := v1.ParsePlatform(text)
		if err != nil {
			return fmt.Errorf("reading the platform %q: %w", text, err)
		}
		built, err := image(ctx, version, platform, programs)
		if err != nil {
			return fmt.Errorf("building for %s: %w", text, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: built, Descriptor: v1.Descriptor{Platform: platform}})
	}
	digest, err := index.Digest()
	if err != nil {
		return fmt.Errorf("computing the digest: %w", err)
	}
	if err := writeTarball(out, name, index); err != nil {
		return fmt.Errorf("writing %s: %w", out, err)
	}
	fmt.Printf("%s@%s in %s\n", name, digest, out)
	return nil
}
