// SPDX-License-Identifier: Apache-2.0

// Command vulncheck lists the known vulnerabilities whose code a release calls, by
// govulncheck. It fails for each that allowed.txt does not name, and for each line there
// that has ended or is not needed. With -openvex, it writes a statement on all known
// vulnerabilities instead. GOVULNDB is another database than Go's, as a URL.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"time"

	"golang.org/x/vuln/scan"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// released are the packages of a release's programs.
var released = []string{"./plugin/...", "./install/...", "./deploy/kubectl-capture_cni"}

func main() {
	openvex := flag.String("openvex", "", "file to write an OpenVEX statement to")
	version := flag.String("version", "", "with -openvex: the release's version, such as 1.2.3")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, "allowed.txt", *openvex, *version, released, time.Now()); err != nil {
		fmt.Fprintln(os.Stderr, "vulncheck:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, file, openvex, version string, packages []string, now time.Time) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	accepted, err := parse(string(content))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if openvex != "" {
		return writeStatement(ctx, openvex, version, packages, accepted)
	}
	found, err := check(ctx, packages)
	if err != nil {
		return err
	}
	err = compare(found, accepted, now)
	if err == nil {
		fmt.Printf("%d known vulnerabilities are called, and accepted\n", len(found))
	}
	return err
}

// vulnerability is one whose code is called.
type vulnerability struct{ id, symbol, caller, fixed string }

func (v vulnerability) String() string {
	return fmt.Sprintf("%s: %s is called from %s; fixed in %s: https://pkg.go.dev/vuln/%[1]s", v.id, v.symbol, v.caller, cmp.Or(v.fixed, "no version yet"))
}

// check returns the vulnerabilities of the packages, each once.
func check(ctx context.Context, packages []string) ([]vulnerability, error) {
	out, err := govulncheck(ctx, "json", packages)
	if err != nil {
		return nil, err
	}
	return read(out)
}

// govulncheck returns what it says of the packages, in a form.
func govulncheck(ctx context.Context, form string, packages []string) (*bytes.Buffer, error) {
	project, err := lab.Project(ctx)
	if err != nil {
		return nil, err
	}
	arguments := []string{"-C=" + project, "-format=" + form, "-scan=symbol"}
	if database := os.Getenv("GOVULNDB"); database != "" {
		arguments = append(arguments, "-db="+database)
	}
	out := &bytes.Buffer{}
	command := scan.Command(ctx, append(arguments, packages...)...)
	command.Stdout = out
	err = command.Start()
	if err == nil {
		err = command.Wait()
	}
	if err != nil {
		return nil, fmt.Errorf("running govulncheck: %w", err)
	}
	return out, nil
}

// read reads govulncheck's messages. A finding without a function is of code that is not
// called.
func read(messages io.Reader) (found []vulnerability, err error) {
	for decoder := json.NewDecoder(messages); ; {
		var message struct {
			Finding *struct {
				OSV   string `json:"osv"`
				Fixed string `json:"fixed_version"`
				Trace []struct{ Package, Function string }
			}
		}
		if err := decoder.Decode(&message); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, err
		}
		f := message.Finding
		if f == nil || len(f.Trace) == 0 || f.Trace[0].Function == "" {
			continue
		}
		called, caller := f.Trace[0], f.Trace[len(f.Trace)-1]
		if !slices.ContainsFunc(found, func(v vulnerability) bool { return v.id == f.OSV }) {
			found = append(found, vulnerability{f.OSV, called.Package + "." + called.Function, caller.Package + "." + caller.Function, f.Fixed})
		}
	}
}
