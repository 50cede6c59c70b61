// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// parts is the directory of other projects' programs, from the project's directory.
const parts = "../../bin/parts"

// instead measures an ADD beside what users would choose in its place: Istio's plugin, and
// the program of its init container, each with both of its backends.
func (b *bench) instead(runs int) error {
	if err := b.answerPods(); err != nil {
		return err
	}
	istio, err := b.istioDirectory()
	if err != nil {
		return err
	}
	rows := []*verb{
		b.row("capture-cni, nftables", "", "ADD", "web", by(config.NFTables)),
		b.row("capture-cni, iptables-legacy", "", "ADD", "web", by(config.IPTablesLegacy)),
	}
	for _, native := range []bool{true, false} {
		backend := map[bool]string{true: "nftables", false: "iptables"}[native]
		rows = append(rows,
			&verb{name: "istio-cni, " + backend, prepare: func(netns string) *exec.Cmd { return b.istioCNI(istio, netns, native) }},
			&verb{name: "istio-init's program, " + backend, prepare: func(netns string) *exec.Cmd { return b.istioInit(netns, native) }})
	}
	if err := b.measureRows(rows, runs); err != nil {
		return err
	}
	return b.printInstead(rows)
}

// istioDirectory returns a directory with the kubeconfig of Istio's plugin.
func (b *bench) istioDirectory() (string, error) {
	dir := filepath.Join(b.dir, "istio")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("creating a directory: %w", err)
	}
	kubeconfig, err := b.api.WriteKubeconfig(dir)
	if err != nil {
		return "", err
	}
	return dir, os.Rename(kubeconfig, filepath.Join(dir, "istio-cni-kubeconfig"))
}

// istioCNI prepares an ADD of Istio's plugin, with its kubeconfig in a directory.
func (b *bench) istioCNI(dir, netns string, native bool) *exec.Cmd {
	command := exec.CommandContext(b.ctx, filepath.Join(parts, "istio", "istio-cni"))
	command.Env = append(os.Environ(), "CNI_COMMAND=ADD", "CNI_CONTAINERID=bench", "CNI_NETNS="+netns, "CNI_IFNAME=eth0", "CNI_PATH=/",
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web")
	command.Stdin = strings.NewReader(fmt.Sprintf(
		`{"cniVersion":"1.0.0","name":"bench","type":"istio-cni","plugin_log_level":"error","cni_agent_run_dir":%q,"native_nftables":%v,"prevResult":{"cniVersion":"1.0.0"}}`, dir, native))
	return command
}

// istioInit prepares the program of Istio's init container, with the arguments that its
// injector gives it. nsenter becomes that program.
func (b *bench) istioInit(netns string, native bool) *exec.Cmd {
	args := append([]string{"--net=" + netns, filepath.Join(parts, "istio", "pilot-agent")}, lab.IstioInit()...)
	return exec.CommandContext(b.ctx, "nsenter", append(args, fmt.Sprintf("--native-nftables=%v", native))...)
}
