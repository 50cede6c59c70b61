// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
)

// TestEarlierSkew runs the plugin of one release with the agent of another, which writes
// the plugin's entry and credentials: for the moments in which an agent has started and
// has not installed its own plugin yet. Runtimes use each verb.
func TestEarlierSkew(t *testing.T) {
	t.Parallel()
	for _, version := range lab.EarlierVersions {
		t.Run(version, func(t *testing.T) { testVersionSkew(t, version) })
	}
}

func testVersionSkew(t *testing.T, version string) {
	earlier := lab.Part(t, version)
	for _, mode := range []string{"insert", "owned", "dropin"} {
		t.Run("earlier agent, "+mode, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			n.Start(t, n.strict(t, mode)...).StopOnceReady(t) // installs capture-cni-lookup, too
			today := filepath.Join(n.Release, "capture-cni")
			n.Release = earlier
			a := n.StartReady(t, append(n.strict(t, mode), "--plugin", today)...)
			n.expectPlugin(t, today)
			metric := `capture_cni_adds_total{reason="",result="captured"} 1`
			if version == "v0.1.0" { // it can't read today's records
				metric = `capture_cni_records_lost_total{cause="form"} 1`
			}
			n.expectVerbs(t, a, metric)
		})
		t.Run("earlier plugin, "+mode, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			mixed := t.TempDir()
			lab.Check(t, os.Symlink(filepath.Join(earlier, "capture-cni"), mixed+"/capture-cni"))
			lab.Check(t, os.Symlink(filepath.Join(n.Release, "capture-cni-lookup"), mixed+"/capture-cni-lookup"))
			flags := n.strict(t, mode, `"sharedKernelRuntimeClasses": ["shared"]`) // a key that it does not know
			a := n.StartReady(t, append(flags, "--plugin", mixed+"/capture-cni")...)
			n.expectPlugin(t, filepath.Join(earlier, "capture-cni"))
			lab.Check(t, n.learnEarlierRules(t).Stop(t))
			n.expectVerbs(t, a, `capture_cni_adds_total{reason="",result="captured"} 2`)
		})
	}
}

// strict returns flags with which STATUS fails while meshed pods could not start, and more
// keys of the entry, on a node whose list has the version in which the CNI specification
// added STATUS.
func (n *node) strict(t *testing.T, mode string, more ...string) []string {
	t.Helper()
	n.PreparePods(t)
	netConf := filepath.Join(n.Dir, "netconf.json")
	keys := append(more, `"status": "strict"`, `"lookupTimeout": "5s"`)
	lab.Check(t, os.WriteFile(netConf, []byte("{"+strings.Join(keys, ", ")+"}"), 0o600))
	if content := files(t, n.NetDir)["/"+machine.PrimaryName]; !strings.Contains(content, "1.1.0") {
		n.Write(t, machine.PrimaryName, strings.Replace(content, "0.3.1", "1.1.0", 1))
	}
	return []string{"--mode", mode, "--netconf", netConf}
}

// expectPlugin expects this file as the installed plugin.
func (n *node) expectPlugin(t *testing.T, path string) {
	t.Helper()
	want, err := os.ReadFile(path)
	lab.Check(t, err)
	if got := files(t, n.BinDir)["/capture-cni"]; got != string(want) {
		t.Fatalf("the installed plugin is not %s", path)
	}
}

// expectVerbs uses each verb for a meshed pod and for one outside the mesh, and expects a
// metric of the agent. Without the agent and its credentials, STATUS and the ADD of a
// meshed pod fail.
func (n *node) expectVerbs(t *testing.T, a *machine.Agent, metric string) {
	t.Helper()
	web, err := n.StartPod(t, "web")
	lab.Check(t, err)
	plain, err := n.StartPod(t, "plain")
	lab.Check(t, err)
	attached := &libcni.GCArgs{}
	for _, s := range []*machine.Pod{web, plain} {
		expectVerbs(t, s)
		attached.ValidAttachments = append(attached.ValidAttachments, types.GCAttachment{ContainerID: s.Runtime.ContainerID, IfName: s.Runtime.IfName})
	}
	if err := web.CNI.GCNetworkList(t.Context(), web.List, attached); err != nil {
		t.Errorf("GC: %v", err)
	}
	lab.Check(t, n.CheckCaptured(t.Context(), web.Host, "web"))
	lab.Check(t, machine.ExpectNoRules(plain.Host))
	lab.Check(t, web.Host.Do(func() error { return flushRules(t.Context()) }))
	if err := web.CNI.CheckNetworkList(t.Context(), web.List, web.Runtime); err == nil {
		t.Error("CHECK passes for a pod whose rules were changed")
	}
	lab.Check(t, web.Stop(t))
	lab.Check(t, plain.Stop(t))
	a.WaitForMetric(t, metric)
	a.Stop(t)
	for _, path := range n.credentials(t) {
		lab.Check(t, os.Remove(n.Dir+path))
	}
	if err := web.CNI.GetStatusNetworkList(t.Context(), web.List); err == nil {
		t.Error("STATUS passes while meshed pods can't start")
	}
	if _, err := n.AddPod(t, "web"); err == nil {
		t.Error("ADD of a meshed pod that can't be read succeeds")
	}
}

// expectVerbs uses VERSION, CHECK and STATUS.
func expectVerbs(t *testing.T, s *machine.Pod) {
	t.Helper()
	versions, err := s.CNI.GetVersionInfo(t.Context(), "capture-cni")
	if err != nil || !slices.Contains(versions.SupportedVersions(), s.List.CNIVersion) {
		t.Errorf("VERSION: %v, %v", versions, err)
	}
	if err := s.CNI.CheckNetworkList(t.Context(), s.List, s.Runtime); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	if err := s.CNI.GetStatusNetworkList(t.Context(), s.List); err != nil {
		t.Errorf("STATUS: %v", err)
	}
}

func flushRules(ctx context.Context) error {
	return exec.CommandContext(ctx, "nft", "flush", "chain", "inet", "capture-cni", "nat_OUTPUT").Run()
}

// TestRightsWithdrawn takes an agent's right to read pods away, as Helm does at the
// beginning of a downgrade, because the earlier chart has no such rule: the plugin reads
// pods that the agent does not know from the API server.
func TestRightsWithdrawn(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.PreparePods(t)
	n.API.Delete("shop", "web")
	n.Start(t, "--mode", "insert").Ready(t)
	var refused atomic.Int32
	n.API.Misbehave(func(w http.ResponseWriter, r *http.Request) bool {
		ofAgent := r.Header.Get("Authorization") == "Bearer "+n.API.Token()
		if !ofAgent || !strings.Contains(r.URL.Path, "/pods") {
			return false
		}
		refused.Add(1)
		kubeapi.WriteStatus(w, r, http.StatusForbidden, metav1.StatusReasonForbidden, "pods is forbidden")
		return true
	})
	n.API.EndWatches()
	n.PutPod("web", true)
	lab.Check(t, n.StartAndStop(t, "web"))
	if refused.Load() == 0 {
		t.Error("the agent's requests were not refused")
	}
}
