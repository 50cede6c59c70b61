// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// variable returns the name of the environment variable that sets a flag, such as CAPTURE_CNI_NET_DIR
// for --net-dir. The DaemonSet's containers have these variables, so commands under kubectl exec inherit
// them.
func variable(flag string) string {
	return "CAPTURE_CNI_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// readEnvironment sets each flag from its environment variable, unless the command line sets the flag.
func readEnvironment(flags *pflag.FlagSet) error {
	var faults []error
	flags.VisitAll(func(flag *pflag.Flag) {
		value, ok := os.LookupEnv(variable(flag.Name))
		if !ok || flag.Changed || flag.Name == "help" || flag.Name == "version" {
			return
		}
		if err := flags.Set(flag.Name, value); err != nil {
			faults = append(faults, fmt.Errorf("environment variable %s is %q: %w", variable(flag.Name), value, err))
		}
	})
	return errors.Join(faults...)
}

type logging struct{ level, format string }

func (l *logging) declare(flags *pflag.FlagSet) {
	flags.StringVar(&l.level, "log-level", "info", "lowest level of log entries: debug, info, warn or error")
	flags.StringVar(&l.format, "log-format", "text", "format of log entries: text or json")
}

func (l logging) logger(out io.Writer) (*slog.Logger, error) {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	level, ok := levels[l.level]
	if !ok {
		return nil, fmt.Errorf("--log-level is %q: expected debug, info, warn or error", l.level)
	}
	options := &slog.HandlerOptions{Level: level}
	switch l.format {
	case "text":
		return slog.New(slog.NewTextHandler(out, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(out, options)), nil
	default:
		return nil, fmt.Errorf("--log-format is %q: expected text or json", l.format)
	}
}
