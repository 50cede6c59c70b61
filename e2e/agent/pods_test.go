// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/netfilter"
)

// fakePlugin is an interface plugin, or any other one, that makes nothing.
const fakePlugin = `#!/bin/sh
case "$CNI_COMMAND" in
ADD) echo '{"cniVersion": "0.3.1", "ips": [{"version": "4", "address": "10.77.0.2/32"}]}' ;;
esac
`

// started is a pod that a runtime has set up, with the list of that moment: it
// will be ended by that list, too, whatever came since.
type started struct {
	host    *lab.Host
	cni     *libcni.CNIConfig
	list    *libcni.NetworkConfigList
	runtime *libcni.RuntimeConf
}

// begin has libcni do what a runtime does with what it would load. It may be
// called by any goroutine of a test's.
func (n *node) begin(t *testing.T, pod string) (*started, error) {
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
	s := &started{host: host, list: list, cni: libcni.NewCNIConfigWithCacheDir([]string{n.binDir}, n.dir+"/cache", nil)}
	s.runtime = &libcni.RuntimeConf{
		ContainerID: filepath.Base(host.Path()), NetNS: host.Path(), IfName: "eth0",
		Args: [][2]string{{"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", pod}, {"K8S_POD_UID", "6c1f8c3e-0b7a-4f0e-9d53-2f1f5a1d9f01"}},
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := s.cni.AddNetworkList(ctx, list, s.runtime); err != nil {
		return nil, err
	}
	return s, s.expectCaptured(pod == "web")
}

func (s *started) expectCaptured(want bool) error {
	return s.host.Do(func() error {
		state, err := netfilter.Inspect(context.Background())
		if err == nil && (state.Stamp != "") != want {
			err = fmt.Errorf("captured is not %v", want)
		}
		return err
	})
}

func (s *started) end(t *testing.T) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.cni.DelNetworkList(ctx, s.list, s.runtime); err != nil {
		return err
	}
	if err := s.expectCaptured(false); err != nil {
		return err
	}
	return s.host.Close()
}

// add begins and ends a pod.
func (n *node) add(t *testing.T, pod string) error {
	t.Helper()
	s, err := n.begin(t, pod)
	if err != nil {
		return err
	}
	return s.end(t)
}

// otherPlugins are what else the primary's list calls.
func (n *node) otherPlugins(t *testing.T) {
	t.Helper()
	for _, name := range []string{"ptp", "portmap"} {
		check(t, os.WriteFile(filepath.Join(n.binDir, name), []byte(fakePlugin), 0o755))
	}
	n.pod("web", true)
	n.pod("plain", false)
}
