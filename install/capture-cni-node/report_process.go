// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/report"
)

// aboutOf returns a function that writes the time, the agent's version, and the flags that the command
// line or the environment set.
func aboutOf(command *cobra.Command) func(context.Context, io.Writer) error {
	return func(_ context.Context, out io.Writer) error {
		_, err := fmt.Fprintf(out, "time     %s\nversion  %s, %s\nflags    %s\n", time.Now().UTC().Format(time.RFC3339),
			config.OwnVersion(), runtime.Version(), flagsOf(command.Flags()))
		return err
	}
}

// flagsOf returns the flags that were set, with their values or, for values that are not plain, the
// placeholder of report.Plain. Of a URL with a user, it returns only the scheme and the host. No other
// flag contains a secret.
func flagsOf(flags *pflag.FlagSet) string {
	var words []string
	flags.VisitAll(func(flag *pflag.Flag) {
		if !flag.Changed {
			return
		}
		value := flag.Value.String()
		if at, err := url.Parse(value); err == nil && at.User != nil {
			value = at.Scheme + "://" + at.Host // a URL may contain a password
		}
		words = append(words, "--"+flag.Name+"="+report.Plain(value))
	})
	return strings.Join(words, " ")
}

func kernelVersion(_ context.Context, out io.Writer) error {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return fmt.Errorf("reading the kernel's version: %w", err)
	}
	_, err := fmt.Fprintln(out, unix.ByteSliceToString(name.Sysname[:]), unix.ByteSliceToString(name.Release[:]),
		unix.ByteSliceToString(name.Version[:]), unix.ByteSliceToString(name.Machine[:]))
	return err
}

// kernelModules writes the name and size of each loaded module, without its address.
func kernelModules(_ context.Context, out io.Writer) error {
	file, err := os.Open("/proc/modules")
	if errors.Is(err, fs.ErrNotExist) { // the kernel has no modules
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if fields := strings.Fields(lines.Text()); len(fields) > 1 {
			fmt.Fprintln(out, report.Plain(fields[0]), report.Plain(fields[1]))
		}
	}
	return lines.Err()
}
