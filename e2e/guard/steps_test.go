// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// TestClockSteps sets the clock of a node back and forth by hours while the built guard
// runs: it goes on to examine and to repair, and no step makes it stuck.
func TestClockSteps(t *testing.T) {
	n := newNode()
	p := n.run(t, "web")
	p.capture(t, nil)
	stub := &criStub{netns: map[string]string{p.sandbox.ID: p.sandbox.NetNS}, items: []*runtimeapi.PodSandbox{{
		Id: p.sandbox.ID, State: runtimeapi.PodSandboxState_SANDBOX_READY, Annotations: p.sandbox.Annotations,
		Metadata: &runtimeapi.PodSandboxMetadata{Namespace: p.sandbox.Namespace, Name: p.sandbox.Name, Uid: p.sandbox.UID},
	}}}
	runDir := t.TempDir()
	n.serveIn(t, runDir)
	program := filepath.Join(t.TempDir(), "capture-cni-node")
	lab.Check(t, lab.BuildWithClock(t.Context(), program, "github.com/capture-cni/capture-cni/install/capture-cni-node"))
	clock, err := lab.NewClock(t.TempDir())
	lab.Check(t, err)
	address, err := lab.FreeAddress()
	lab.Check(t, err)
	command := exec.Command(program, "guard", "--run-dir", runDir, "--state-dir", "/nonexistent", "--listen", address, "--round", "1s",
		"--cri-socket", serveCRI(t, t.TempDir(), stub))
	command.Env, command.Stderr = append(os.Environ(), clock.Variable()), os.Stderr
	lab.Check(t, command.Start())
	t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	waitForCaptured(t, address, 1)

	for _, ahead := range []time.Duration{-10 * time.Hour, 10 * time.Hour, 0} {
		lab.Check(t, clock.Set(ahead))
		p.nft(t, "delete", "table", "inet", "capture-cni")
		for deadline := time.Now().Add(30 * time.Second); p.rules(t) == (netfilter.State{}); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s ahead: the pod is not repaired", ahead)
			}
		}
		expectAlive(t, address)
		time.Sleep(2 * time.Second) // a round
		shown := number(t, metrics(t, address), lastRound)
		if want := float64(time.Now().Add(ahead).Unix()); math.Abs(shown-want) > 60 {
			t.Errorf("%s ahead: the last round was %.0f s from now", ahead, shown-want)
		}
	}
}

func expectAlive(t *testing.T, address string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/healthz", nil)
	lab.Check(t, err)
	answer, err := http.DefaultClient.Do(request)
	lab.Check(t, err)
	defer answer.Body.Close()
	if body, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusOK {
		t.Errorf("/healthz: %s", body)
	}
}
