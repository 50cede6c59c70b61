// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/e2e/debian"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// TestKernels boots each kernel for the smoke.
func TestKernels(t *testing.T) {
	var packages []string
	for _, s := range smoke {
		packages = append(packages, s.Package)
	}
	suite := buildSuite(t, packages...)
	var tested atomic.Int32
	t.Cleanup(func() {
		if tested.Load() == 0 {
			t.Error("the mirror has none of the kernels: put newer ones into kernel.go")
		}
	})
	for _, kernel := range Of(AMD64) {
		t.Run(kernel.Release, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			image, err := fetch(t, kernel)
			if err != nil {
				lab.SkipGone(t, err)
			}
			tested.Add(1)
			guest := Guest{Image: image, Suite: suite}
			for _, s := range smoke {
				guest.Job.Runs = append(guest.Job.Runs, s.Run())
			}
			for i, outcome := range boot(t, guest) {
				if err := smoke[i].Failure(outcome); err != nil {
					t.Errorf("%s: %v", outcome.Name, err)
				}
			}
			t.Logf("%s: took %s", image.Package, time.Since(began).Round(time.Second))
		})
	}
}

// buildSuite builds tests for guests, where there is what boots them.
func buildSuite(t *testing.T, packages ...string) Suite {
	t.Helper()
	for _, program := range []string{"qemu-system-x86_64", "depmod"} {
		lab.RequireProgram(t, program)
	}
	lab.RequireTime(t)
	suite, err := Build(t.Context(), t.TempDir(), kept, All[0], packages...)
	if err != nil {
		t.Fatal(err)
	}
	return suite
}

// kept is where kernels outlive a run.
const kept = "../../bin/kernels"

var fetching sync.Mutex

// fetch returns an error if the mirror no longer has the kernel: that fails no test.
func fetch(t *testing.T, kernel Kernel) (Image, error) {
	t.Helper()
	fetching.Lock()
	defer fetching.Unlock()
	found, err := Fetch(t.Context(), kernel, kept)
	if err != nil && !errors.Is(err, debian.ErrGone) {
		t.Fatal(err)
	}
	return found, err
}

func boot(t *testing.T, guest Guest) []Outcome {
	t.Helper()
	outcomes, err := guest.Boot(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return outcomes
}
