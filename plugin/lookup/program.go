// SPDX-License-Identifier: Apache-2.0

package lookup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/capture-cni/capture-cni/config"
)

// ProgramPath returns the path of capture-cni-lookup, which is in the same directory as this
// executable.
func ProgramPath() string {
	executable, err := os.Executable()
	if err != nil {
		return config.LookupProgram // a path that does not exist
	}
	return filepath.Join(filepath.Dir(executable), config.LookupProgram)
}

// maxErrorOutput limits the bytes that the program may write to stderr. An error repeats the beginning
// of this output.
const maxErrorOutput = 512

// askProgram executes capture-cni-lookup. The program gets no environment variable except
// config.DirectoryVariable. The error wraps a *Fault if the program answers with one, or if the program
// or the credentials are missing. Any other error means that no usable answer arrived.
func (l Lookup) askProgram(ctx context.Context, request Request) (Answer, error) {
	request.Directory = l.Directory
	answer, err := inTheirVersion(request, func(request Request) (Answer, error) { return l.execute(ctx, request) })
	if err != nil {
		return Answer{}, fmt.Errorf("asking the API server: %w", err)
	}
	return answer, nil
}

func (l Lookup) execute(ctx context.Context, request Request) (Answer, error) {
	if err := l.checkProgram(); err != nil {
		return Answer{}, err
	}
	document, err := json.Marshal(request)
	if err != nil {
		return Answer{}, fmt.Errorf("encoding the request: %w", err)
	}
	stdout, stderr := &bounded{limit: MaxAnswer}, &bounded{limit: maxErrorOutput}
	command := exec.CommandContext(ctx, l.Program)
	command.Env = []string{} // nil would mean this process's environment
	if directory, ok := os.LookupEnv(config.DirectoryVariable); ok {
		command.Env = append(command.Env, config.DirectoryVariable+"="+directory)
	}
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(document), stdout, stderr
	command.WaitDelay = time.Second // ends the wait for a child that holds the pipes open
	if err := command.Run(); err != nil {
		return Answer{}, fmt.Errorf("executing %s: %w", l.Program, errors.Join(ctx.Err(), stdout.overflow, err, stderr.text()))
	}
	return ParseAnswer(stdout.content.Bytes(), request)
}

// Uninstalled is the hint in errors that also occur if capture-cni was uninstalled without state=absent,
// so that runtimes still call the plugin.
const Uninstalled = "Was capture-cni uninstalled? Install it again, then remove it with state=absent"

// checkProgram returns a Fault if this node has no credentials or no program, and another error if it
// can't examine their files.
func (l Lookup) checkProgram() error {
	for _, path := range []string{filepath.Join(l.Directory, config.KubeconfigName), l.Program} {
		_, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return &Fault{Kind: NoCredentials, Message: fmt.Sprintf("%v: check that the node agent runs on this node and writes to %s. %s",
				err, filepath.Dir(path), Uninstalled)}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

type bounded struct {
	content  bytes.Buffer
	limit    int
	overflow error // set after more output than limit
}

// Write implements io.Writer. Beyond the limit, it returns an error, which ends the program that writes
// the output.
func (b *bounded) Write(p []byte) (int, error) {
	n, _ := b.content.Write(p[:min(len(p), b.limit-b.content.Len())])
	if n < len(p) {
		b.overflow = fmt.Errorf("more than %d bytes of output", b.limit)
	}
	return n, b.overflow
}

// text returns the written text as an error, or nil if nothing was written.
func (b *bounded) text() error {
	if b.content.Len() == 0 {
		return nil
	}
	return errors.New(config.Shortened(b.content.String()))
}
