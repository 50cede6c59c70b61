// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/capture-cni/capture-cni/config"
)

const tryTimeout = 10 * time.Second

// Executor executes a program, and returns the program's stdout.
type Executor func(ctx context.Context, path string, args []string, stdin []byte, environment []string) (out []byte, err error)

// tryPlugin calls the plugin with the command VERSION, as a runtime does, and returns an error if the
// plugin does not answer with its versions.
func (run Executor) tryPlugin(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	out, err := run.callPlugin(ctx, path, []byte(`{"cniVersion":"1.0.0"}`), "CNI_COMMAND=VERSION")
	if err != nil {
		return fmt.Errorf("the plugin does not run: %w", err)
	}
	if !bytes.Contains(out, []byte("supportedVersions")) {
		return fmt.Errorf("the plugin does not run: its response to VERSION has no supportedVersions: %q", out)
	}
	return nil
}

// tryVersion executes capture-cni-lookup, and returns an error if it does not print its version.
func (run Executor) tryVersion(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	out, err := run.execute(ctx, path, []string{"--version"}, nil, []string{})
	if err == nil && !bytes.HasPrefix(out, []byte(config.LookupProgram+" ")) {
		err = fmt.Errorf("it reports %q as its version", out)
	}
	if err != nil {
		return fmt.Errorf("%s does not run: %w", config.LookupProgram, err)
	}
	return nil
}

// callPlugin calls a plugin as a runtime does. If the call fails, the error is the one that the plugin
// printed, if it printed one.
func (run Executor) callPlugin(ctx context.Context, path string, conf []byte, environment ...string) ([]byte, error) {
	out, err := run.execute(ctx, path, nil, conf, environment)
	var reported types.Error
	if err != nil && json.Unmarshal(out, &reported) == nil && reported.Msg != "" {
		err = &reported
	}
	return out, err
}

func (run Executor) execute(ctx context.Context, path string, args []string, stdin []byte, environment []string) ([]byte, error) {
	if run == nil {
		run = execute
	}
	return run(ctx, path, args, stdin, environment)
}

func execute(ctx context.Context, path string, args []string, stdin []byte, environment []string) (out []byte, err error) {
	for {
		command := exec.CommandContext(ctx, path, args...)
		command.Env = environment
		command.Stdin = bytes.NewReader(stdin)
		out, err = command.Output()
		if !errors.Is(err, syscall.ETXTBSY) || ctx.Err() != nil {
			return out, err
		}
		// Another child of the agent still has the file open for writing, between its fork and exec, so
		// retry.
		time.Sleep(time.Millisecond)
	}
}
