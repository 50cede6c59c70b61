// SPDX-License-Identifier: Apache-2.0

// Command progress runs `go test` and says what runs, what has ended and how long it took.
// It prints the output of failed tests only. At the end it prints one table of packages, and
// the tests that took 10 s or more.
//
// Its arguments are those of `go test`, each flag in the form -name=value.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// silence is how long nothing is printed before progress says what still runs.
const silence = 20 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "progress:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, args []string) error {
	test := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	test.Cancel = func() error { return test.Process.Signal(os.Interrupt) } // go test ends its tests
	test.Stderr = os.Stderr
	stream, err := test.StdoutPipe()
	if err != nil {
		return fmt.Errorf("connecting to go test: %w", err)
	}
	if err := test.Start(); err != nil {
		return fmt.Errorf("starting go test: %w", err)
	}
	r := newReport(out, packages(args), time.Now)
	read := r.follow(decode(stream))
	ended := test.Wait()
	r.table()
	return errors.Join(read, ended)
}

// packages counts the packages among the arguments of go test.
func packages(args []string) (n int) {
	for _, arg := range args {
		if !strings.HasPrefix(arg, "-") {
			n++
		}
	}
	return n
}

// event is a line of `go test -json`, as `go doc test2json` describes it.
type event struct {
	Action     string
	Package    string
	ImportPath string // of build-output and build-fail
	Test       string
	Elapsed    float64 // in seconds
	Output     string
}

// decode sends the events of a stream, and the error that ended it.
func decode(stream io.Reader) (<-chan event, <-chan error) {
	events, failed := make(chan event), make(chan error, 1)
	go func() {
		defer close(events)
		decoder := json.NewDecoder(stream)
		for {
			var e event
			if err := decoder.Decode(&e); errors.Is(err, io.EOF) {
				return
			} else if err != nil {
				failed <- fmt.Errorf("reading the output of go test: %w", err)
				_, _ = io.Copy(io.Discard, stream) // lets go test end
				return
			}
			events <- e
		}
	}()
	return events, failed
}
