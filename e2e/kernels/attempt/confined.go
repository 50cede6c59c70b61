// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capture-cni/capture-cni/e2e/kernels"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

const (
	netDir, binDir = "/etc/cni/net.d", "/opt/cni/bin"
	criSocket      = "/run/cri.sock"
	patience       = 10 * time.Second
	netConf        = `{"backend": "auto"}`
	conflist       = `{"cniVersion": "1.0.0", "name": "test", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true,
		"ipam": {"type": "host-local", "ranges": [[{"subnet": "10.77.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}`
)

// confined prints what comes of confinements, one after the other.
func confined(arg string) error {
	var confinements []kernels.Confinement
	if err := json.Unmarshal([]byte(arg), &confinements); err != nil {
		return err
	}
	n, err := newConfinedNode()
	if err != nil {
		return err
	}
	for _, c := range confinements {
		result, err := n.try(c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		line, err := json.Marshal(result)
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", line)
	}
	return nil
}

// confinedNode has cnitool in place of a runtime, and a bridge for its pods.
type confinedNode struct {
	node
	batch, web *lab.Host
	agent      *process
}

func newConfinedNode() (*confinedNode, error) {
	if err := unix.Mount("securityfs", "/sys/kernel/security", "securityfs", 0, ""); err != nil {
		return nil, fmt.Errorf("mounting securityfs: %w", err)
	}
	if out, err := exec.Command(program("load-default"), kernels.ContainerdProfile).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("loading containerd's profile: %w: %s", err, out)
	}
	// The agent's container has the node's file system there.
	if err := errors.Join(os.Mkdir("/host", 0o755), unix.Mount("/", "/host", "", unix.MS_BIND|unix.MS_REC, "")); err != nil {
		return nil, fmt.Errorf("mounting /host: %w", err)
	}
	inner, err := newNode(kernels.Trial{Mode: "REDIRECT", OnlyIPv4: true})
	if err != nil {
		return nil, err
	}
	batch, batchErr := lab.NewHost()
	web, webErr := lab.NewHost()
	if err := errors.Join(batchErr, webErr); err != nil {
		return nil, err
	}
	return &confinedNode{inner, batch, web, nil}, runtime{pod: inner.meshed(), host: web}.serve(criSocket)
}

// try lets a node install, start pods and repair one, as far as the profiles allow it.
func (n *confinedNode) try(c kernels.Confinement) (result kernels.Confined, err error) {
	if err := parse("--replace", c.Profiles); err != nil {
		return result, err
	}
	if n.agent == nil || !c.SameAgent {
		if err := n.install(c.Agent); err != nil {
			return result, err
		}
	}
	result.Agent, result.AgentLog = n.agent.label(), n.agent.log.String()
	for _, directory := range []string{netDir, binDir} {
		found, _ := filepath.Glob(directory + "/*capture-cni*")
		result.Files = append(result.Files, found...)
	}
	result.Unmeshed, result.Add, result.Left = cnitool("add", "batch", n.batch), cnitool("add", "web", n.web), listed(n.web)
	if result.Add == "" {
		stop := serve(n.web, &lab.Host{})
		result.Answer = ask(n.web, 1)[0]
		if c.Guarded {
			err = n.guard(c.Guard, &result)
		}
		stop()
	}
	result.Del = cnitool("del", "web", n.web) + cnitool("del", "batch", n.batch)
	result.LeftAfterDel = listed(n.web)
	result.Denials = denials()
	return result, errors.Join(err, parse("--remove", c.Profiles))
}

// install starts the agent on an empty node, after its init container, and waits until it
// has done what it can.
func (n *confinedNode) install(profile string) error {
	if n.agent != nil {
		n.agent.stop()
	}
	for _, directory := range []string{"/etc/cni", "/opt/cni", "/var/lib/capture-cni", "/run/capture-cni"} {
		if err := os.RemoveAll(directory); err != nil {
			return err
		}
	}
	err := errors.Join(os.MkdirAll(netDir, 0o755), os.MkdirAll(binDir, 0o755), os.WriteFile(netDir+"/10-test.conflist", []byte(conflist), 0o644),
		os.Symlink(program("bridge"), binDir+"/bridge"), os.Symlink(program("host-local"), binDir+"/host-local"))
	if err != nil {
		return err
	}
	test, err := start(profile, "-all,+sys_admin,+net_admin,+net_raw,+sys_chroot,+sys_module", "backend", "--root", "/host", "--netconf", netConf)
	if err != nil {
		return err
	}
	if err := test.Wait(); err != nil {
		return fmt.Errorf("testing the backend: %w: %s", err, test.log)
	}
	n.agent, err = start(profile, "-all", "run", "--root", "/host", "--netconf", netConf, "--mode", "insert", "--plugin", program("capture-cni"),
		"--kubeconfig", n.kubeconfig, "--ca-file", filepath.Dir(n.kubeconfig)+"/ca.crt", "--namespace", "mesh", "--cri-socket", criSocket)
	await(func() bool {
		return strings.Contains(n.agent.log.String(), "good=true") || strings.Contains(n.agent.log.String(), "permission denied")
	})
	return err
}

// guard deletes the rules of the meshed pod, and starts a guard, until the pod is captured
// again or the guard can't do it.
func (n *confinedNode) guard(profile string, result *kernels.Confined) error {
	if err := n.web.Do(func() error { return inContainer("nft", "flush", "ruleset").Run() }); err != nil {
		return err
	}
	guard, err := start(profile, "-all,+sys_admin,+net_admin", "guard", "--netconf", netConf, "--round", "1s", "--cri-socket", criSocket, "--state-dir", "/nonexistent")
	if err != nil {
		return err
	}
	await(func() bool { return strings.Contains(guard.log.String(), "pod=shop/web") })
	result.Guard, result.GuardLog, result.Repaired = guard.label(), guard.log.String(), ask(n.web, 1)[0]
	guard.stop()
	return nil
}

// await waits until a condition holds, or patience ends.
func await(condition func() bool) {
	for deadline := time.Now().Add(patience); !condition() && time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond)
	}
}

// cnitool returns the error that it prints.
func cnitool(verb, pod string, host *lab.Host) string {
	command := exec.Command(program("cnitool"), verb, "test", host.Path())
	command.Env = append(os.Environ(), "CNI_PATH="+binDir, "NETCONFPATH="+netDir, "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME="+pod+";K8S_POD_UID="+uid)
	if out, err := command.CombinedOutput(); err != nil {
		return string(out)
	}
	return ""
}
