// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// fakePlugin stands in for any other plugin of the chain. It creates nothing.
const fakePlugin = `#!/bin/sh
case "$CNI_COMMAND" in
ADD) echo '{"cniVersion": "0.3.1", "ips": [{"version": "4", "address": "10.77.0.2/32"}]}' ;;
esac
`

// startedPod is a pod that a runtime has started, with the list at that time. The
// runtime stops it by the same list.
type startedPod struct {
	host    *lab.Host
	cni     *libcni.CNIConfig
	list    *libcni.NetworkConfigList
	runtime *libcni.RuntimeConf
}

// addPod runs the ADDs of the list that a runtime would load.
func (n *node) addPod(t *testing.T, pod string) (*startedPod, error) {
	t.Helper()
	host, err := newSandbox(t)
	if err != nil {
		return nil, err
	}
	files, err := libcni.ConfFiles(n.netDir, []string{".conf", ".conflist"})
	if err != nil {
		return nil, err
	}
	list, err := libcni.NetworkConfFromFile(files[0])
	if err != nil {
		return nil, err
	}
	s := &startedPod{host: host, list: list, cni: libcni.NewCNIConfigWithCacheDir([]string{n.binDir}, n.dir+"/cache", nil)}
	s.runtime = &libcni.RuntimeConf{
		ContainerID: filepath.Base(host.Path()), NetNS: host.Path(), IfName: "eth0",
		Args: [][2]string{{"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", pod}, {"K8S_POD_UID", n.uid(pod)}},
	}
	ctx, cancel := context.WithTimeout(t.Context(), lab.Patience)
	defer cancel()
	_, err = s.cni.AddNetworkList(ctx, list, s.runtime)
	return s, err
}

// startPod starts a pod, and returns an error unless it is captured as it asks for. Any
// goroutine of a test may call it.
func (n *node) startPod(t *testing.T, pod string) (*startedPod, error) {
	t.Helper()
	s, err := n.addPod(t, pod)
	if err != nil {
		return nil, err
	}
	if pod == "plain" {
		return s, expectNoRules(s.host)
	}
	return s, n.checkCaptured(t.Context(), s.host, pod)
}

// checkCaptured returns an error unless a namespace has exactly the rules that a meshed
// pod asks for: today's or, where the earlier release's plugin may run, those of that one.
func (n *node) checkCaptured(ctx context.Context, host *lab.Host, pod string) error {
	fault := host.CheckRules(ctx, newPod(pod, true))
	if fault == nil || n.earlierRules == "" {
		return fault
	}
	rules, err := host.ListRules(ctx)
	if err == nil && rules != n.earlierRules {
		err = fmt.Errorf("neither today's rules nor those of the earlier release: %w:\n%s", fault, rules)
	}
	return err
}

// learnEarlierRules starts a pod with the plugin of the earlier release, which is
// installed, and keeps its rules.
func (n *node) learnEarlierRules(t *testing.T) *startedPod {
	t.Helper()
	s, err := n.addPod(t, "web")
	lab.Check(t, err)
	n.earlierRules, err = s.host.ListRules(t.Context())
	lab.Check(t, err)
	if !strings.Contains(n.earlierRules, "redirect to :15001") || !strings.Contains(n.earlierRules, "redirect to :15006") {
		t.Fatalf("the earlier release captures nothing: %s", n.earlierRules)
	}
	return s
}

// startUncaptured starts and stops a meshed pod, and returns an error if it is captured.
func (n *node) startUncaptured(t *testing.T) error {
	t.Helper()
	s, err := n.addPod(t, "web")
	if err != nil {
		return err
	}
	return errors.Join(expectNoRules(s.host), s.stop(t))
}

// expectNoRules returns an error if a capture rule is in a namespace.
func expectNoRules(host *lab.Host) error {
	return host.Do(func() error {
		state, err := netfilter.Inspect(context.Background())
		if err == nil && state != (netfilter.State{}) {
			err = fmt.Errorf("the namespace has the rules %+v", state)
		}
		return err
	})
}

func (s *startedPod) stop(t *testing.T) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lab.Patience)
	defer cancel()
	if err := s.cni.DelNetworkList(ctx, s.list, s.runtime); err != nil {
		return err
	}
	if err := expectNoRules(s.host); err != nil {
		return err
	}
	return s.host.Close()
}

// startAndStop starts and stops a pod.
func (n *node) startAndStop(t *testing.T, pod string) error {
	t.Helper()
	s, err := n.startPod(t, pod)
	if err != nil {
		return err
	}
	return s.stop(t)
}

// preparePods installs the other plugins of the primary's list, and serves pods.
func (n *node) preparePods(t *testing.T) {
	t.Helper()
	n.installOthers(t)
	n.pod("web", true)
	n.pod("plain", false)
}

func (n *node) installOthers(t *testing.T) {
	t.Helper()
	for _, name := range []string{"ptp", "portmap"} {
		lab.Check(t, lab.WriteProgram(filepath.Join(n.binDir, name), []byte(fakePlugin)))
	}
}
