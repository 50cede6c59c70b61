// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"

	"github.com/capture-cni/capture-cni/e2e/lab"
)

// Guest is a machine that boots once, for one job.
type Guest struct {
	Image   Image
	Suite   Suite
	Without []string // patterns of the modules that it lacks
	Append  string   // to the kernel's command line
	Job     Job
}

// Outcome is what came of a run. One that the guest did not end has no Ended.
type Outcome struct {
	Run
	*Ended
	Output string
}

// environment is that of all runs. Tests find a program also where only containers have it.
var environment = []string{"PATH=/usr/sbin:" + ContainerPrograms, "HOME=/", "CI=true", lab.BuiltPrograms + "=" + programDirectory}

// clock makes two nanoseconds of the guest's time of each instruction, and skips the time
// in which it waits. So no deadline passes because this machine is slow or busy: what
// times out in a guest was decided there.
const clock = "shift=1,sleep=off"

// Boot runs a guest to its end, in a directory of its own. Its error contains the end of
// what the kernel wrote to its console.
func (g Guest) Boot(ctx context.Context, directory string) ([]Outcome, error) {
	initramfs, err := g.initramfs()
	if err != nil {
		return nil, err
	}
	image, console, results := filepath.Join(directory, "initramfs"), filepath.Join(directory, "console"), filepath.Join(directory, "results")
	if err := os.WriteFile(image, initramfs, 0o600); err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(image) }()
	emulator := g.Image.Architecture.Emulator
	command := exec.CommandContext(ctx, emulator[0], append(slices.Clone(emulator[1:]), "-accel", "tcg,thread=single", "-icount", clock, "-smp", "1", "-m", "1536",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", g.Image.Kernel, "-initrd", image, "-append", "console="+g.Image.Architecture.Console+" panic=-1 loglevel=4 "+g.Append,
		"-chardev", "file,id=console,path="+console, "-chardev", "file,id=results,path="+results)...)
	// qemu ends with this process. The signal is sent when the thread ends that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := command.CombinedOutput()
	if err = errors.Join(err, ctx.Err()); err != nil {
		return nil, fmt.Errorf("%s with %s: %w: %s%s", emulator[0], g.Image.Package, err, out, tail(console))
	}
	written, err := os.ReadFile(results)
	if err != nil {
		return nil, err
	}
	outcomes, err := g.Job.outcomes(written)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", g.Image.Package, err, tail(console))
	}
	return outcomes, nil
}

// initramfs is the suite's, with the guest's modules and job.
func (g Guest) initramfs() ([]byte, error) {
	own := newArchive()
	if err := own.addModules(g.Image, g.Without); err != nil {
		return nil, err
	}
	g.Job.Environment, g.Job.Results = environment, g.Image.Architecture.Results
	job, err := json.Marshal(g.Job)
	own.file(JobFile, 0o600, job)
	return bytes.Join([][]byte{g.Suite.content, own.bytes()}, nil), err
}

// outcomes splits what the guest wrote by runs.
func (j Job) outcomes(written []byte) (outcomes []Outcome, err error) {
	for _, run := range j.Runs {
		output, rest, found := bytes.Cut(written, []byte("\n"+EndMark))
		outcome := Outcome{Run: run, Output: string(output)}
		if !found {
			return nil, fmt.Errorf("the guest ended during %s: %s", run.Name, output)
		}
		line, rest, _ := bytes.Cut(rest, []byte("\n"))
		if err := json.Unmarshal(line, &outcome.Ended); err != nil {
			return nil, err
		}
		outcomes, written = append(outcomes, outcome), rest
	}
	return outcomes, nil
}

// tail is the end of a file that may not exist.
func tail(path string) string {
	const enough = 3000
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(content[max(0, len(content)-enough):])
}
