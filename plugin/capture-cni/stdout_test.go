// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/plugin/verbs"
)

const noisyEnv = "CAPTURE_CNI_TEST_NOISY"

// TestMain runs the noisy process of TestStdoutIsClaimed if the environment asks for it.
func TestMain(m *testing.M) {
	if os.Getenv(noisyEnv) == "" {
		os.Exit(m.Run())
	}
	stdout, err := claimStdout()
	if err != nil {
		panic(err)
	}
	fmt.Println("a library that greets")
	fmt.Fprintln(os.Stdout, "a library that warns")
	os.Exit(verbs.Run("VERSION", stdout, os.Stderr))
}

// TestStdoutIsClaimed writes to os.Stdout as a library may: the runtime reads JSON alone.
func TestStdoutIsClaimed(t *testing.T) {
	t.Parallel()
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), noisyEnv+"=1")
	var stderr strings.Builder
	command.Stderr = &stderr
	stdout, err := command.Output()
	if err != nil || !json.Valid(stdout) {
		t.Errorf("stdout %q, %v", stdout, err)
	}
	if !strings.Contains(stderr.String(), "greets") || !strings.Contains(stderr.String(), "warns") {
		t.Errorf("stderr %q", stderr.String())
	}
}
