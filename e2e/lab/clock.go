// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Clock is the clock of programs that BuildWithClock built. A step of the Clock changes only the time of
// day. As after a step of the machine's clock, timers continue.
type Clock struct{ file string }

// NewClock returns a clock that shows the machine's time. It creates the clock's file in a directory.
func NewClock(dir string) (Clock, error) {
	clock := Clock{filepath.Join(dir, "clock")}
	return clock, clock.Set(0)
}

// Set changes the difference between the clock and the machine's clock. A negative duration sets the
// clock back.
func (c Clock) Set(ahead time.Duration) error {
	file, err := os.OpenFile(c.file, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("setting the clock: %w", err)
	}
	_, err = file.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(ahead/time.Second)), 0)
	return errors.Join(err, file.Close())
}

// Variable returns the environment variable, as NAME=VALUE, that makes a program use the clock.
func (c Clock) Variable() string { return clockVariable + "=" + c.file }

const clockVariable = "CAPTURE_CNI_TEST_CLOCK"

// now is the first statement of time.Now, which reads the kernel's clock.
const now = "sec, nsec, mono := runtimeNow()\n"

// step is the content of a file that is added to package time. It reads the clock's step from memory
// that is shared with the test, because programs also read the time where they must not make a system
// call.
const step = `package time

import (
	"syscall"
	"unsafe"
)

var steps = sharedSteps()

func sharedSteps() *int64 {
	path, set := syscall.Getenv("` + clockVariable + `")
	if !set {
		return new(int64)
	}
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		panic("opening the clock " + path + ": " + err.Error())
	}
	memory, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic("reading the clock " + path + ": " + err.Error())
	}
	return (*int64)(unsafe.Pointer(&memory[0]))
}

func step() int64 { return *steps }
`

// BuildWithClock builds a program of the project whose time.Now uses a Clock. The first build is slow,
// because it compiles all packages again.
func BuildWithClock(ctx context.Context, program, source string) error {
	goroot, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("building with a clock: %w", err)
	}
	original := filepath.Join(strings.TrimSpace(string(goroot)), "src", "time", "time.go")
	content, err := os.ReadFile(original)
	if err != nil {
		return fmt.Errorf("building with a clock: %w", err)
	}
	before, after, found := strings.Cut(string(content), "func Now() Time {\n\t"+now)
	if !found {
		return fmt.Errorf("%s has no function Now that begins with %q", original, now)
	}
	return BuildChanged(ctx, program, source, map[string][]byte{
		original: []byte(before + "func Now() Time {\n\t" + now + "\tsec += step()\n" + after),
		filepath.Join(filepath.Dir(original), "step.go"): []byte(step),
	})
}
