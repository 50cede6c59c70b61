// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// copies is the directory of the cells' copies of the project, and of their logs.
const copies = "bin/matrix"

// run runs a cell's tests in a copy of the project with the cell's parts. The copy stays
// if one fails.
func (c cell) run(ctx context.Context) (err error) {
	dir := filepath.Join(copies, c.name)
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(filepath.Join(dir, "bin"), 0o755)); err != nil {
		return err
	}
	log, err := os.Create(dir + ".log")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	const copied = `tar --exclude=./.git --exclude=./bin --create . | tar --extract --directory "$0" && cp --archive --link bin/parts "$0/bin"`
	if err := command(ctx, log, ".", "sh", "-c", copied, dir); err != nil {
		return fmt.Errorf("copying the project: %w", err)
	}
	for by, replaced := range c.parts {
		for _, file := range []string{"go.mod", "go.sum"} {
			content, err := os.ReadFile(filepath.Join("e2e/parts", by, file))
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, "e2e/parts", replaced, file), content, 0o644); err != nil {
				return err
			}
		}
	}
	if err := command(ctx, log, dir, "make", c.build...); err != nil {
		return fmt.Errorf("building its parts, see %s.log: %w", dir, err)
	}
	for _, args := range c.tests {
		failed := command(ctx, log, filepath.Join(dir, args[0]), "go", append([]string{"test", "-count=1", "-p=1", "-timeout=2h", "-v", "."}, args[1:]...)...)
		err = errors.Join(err, failed)
	}
	if err != nil {
		return fmt.Errorf("testing, see %s.log: %w", dir, err)
	}
	return os.RemoveAll(dir)
}

// command runs a program. An interrupt reaches it, and what it started cleans up.
func command(ctx context.Context, log *os.File, dir, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 5 * time.Minute
	return cmd.Run()
}
