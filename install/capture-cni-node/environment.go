// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// variable returns the environment variable that sets a flag: CAPTURE_CNI_NET_DIR
// for --net-dir. Both containers of the DaemonSet set the same variables; a command
// that kubectl exec runs in a container inherits them.
func variable(flag string) string {
	return "CAPTURE_CNI_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// readEnvironment sets flags from their variables, unless the command line does.
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
