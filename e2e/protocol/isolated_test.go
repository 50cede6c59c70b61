// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// isolate calls the plugin in a root file system with only its two programs, /proc, the
// network namespaces and the credentials. Only /run is writable.
const isolate = `
set -e
mount --make-rprivate /
mount -t tmpfs none "$1"
mkdir "$1/proc" "$1/netns" "$1/credentials" "$1/run"
cp "$2" "$2-lookup" "$1"
mount -t proc proc "$1/proc"
mount --rbind /var/run/netns "$1/netns"
mount --bind "$3" "$1/credentials"
mount -o remount,ro "$1"
[ -n "$4" ] || mount -t tmpfs none "$1/run"
exec chroot "$1" /capture-cni
`

// isolated executes a verb in the file system of isolate.
func (n node) isolated(t *testing.T, host *lab.Host, verb, pod, keys string) outcome {
	t.Helper()
	return n.isolatedWith(t, host, verb, pod, keys, "")
}

// isolatedWith omits /run unless noRun is empty.
func (n node) isolatedWith(t *testing.T, host *lab.Host, verb, pod, keys, noRun string) outcome {
	t.Helper()
	plugin := call{
		command: verb,
		netns:   filepath.Join("/netns", filepath.Base(host.Path())),
		args:    "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=" + pod,
		stdin:   node{kubeconfig: "/credentials/kubeconfig"}.conf(keys),
	}.prepare()
	command := exec.Command("unshare", "--mount", "--pid", "--fork", "sh", "-c", isolate, "sh",
		t.TempDir(), plugin.Path, filepath.Dir(n.kubeconfig), noRun)
	command.Env = append(plugin.Env, "PATH="+os.Getenv("PATH"), config.DirectoryVariable+"=/credentials")
	command.Stdin = plugin.Stdin
	return finish(t, command)
}

// TestNothingButTheBinaries runs ADD without a shell, iptables, nft or a writable disk.
func TestNothingButTheBinaries(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, pod := range []string{"web", "batch"} {
		host := sandbox(t)
		n.isolated(t, host, "ADD", pod, "").succeeds(t)
		expectCaptured(t, host, pod == "web")
	}
}

// TestMissingBackend configures iptables on a node without it: meshed pods are refused,
// pods outside the mesh start, and CHECK and DEL succeed, even for a pod whose rules
// iptables applied before.
func TestMissingBackend(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, backend := range []string{"iptables", "iptables-nft", "iptables-legacy"} {
		keys := fmt.Sprintf(`"backend": %q,`, backend)
		host := sandbox(t)
		n.isolated(t, host, "ADD", "web", keys).fails(t, 101, "this host does not have it", `use backend "nftables"`)
		expectNoRules(t, host)
		n.isolated(t, host, "ADD", "batch", keys).succeeds(t)
		n.isolated(t, host, "DEL", "batch", keys).silent(t)

		call{netns: host.Path(), stdin: n.conf(keys)}.run(t).succeeds(t)
		n.isolated(t, host, "CHECK", "web", keys).silent(t)
		n.isolated(t, host, "DEL", "web", keys).silent(t)
	}
}

// TestOneDeadAddress resolves the API server's name to two addresses, one of which
// drops packets: an attempt succeeds with the other.
func TestOneDeadAddress(t *testing.T) {
	t.Parallel()
	machine := lab.StartHost(t)
	lab.Check(t, machine.AddAddresses("lo"))
	n := newNodeOn(t, machine)
	_, port, _ := strings.Cut(strings.TrimPrefix(n.URL, "https://"), ":")
	machine.Load(t, "table ip unreachable {\n chain output {\n type filter hook output priority 0\n ip daddr 127.0.0.99 drop\n }\n}\n")
	n.URL = "https://api.test:" + port
	kubeconfig, err := n.WriteKubeconfig(t.TempDir())
	lab.Check(t, err)
	allow(t, filepath.Dir(kubeconfig))
	for _, addresses := range [][2]string{{"127.0.0.99", "127.0.0.1"}, {"127.0.0.1", "127.0.0.99"}} {
		hosts := filepath.Join(t.TempDir(), "hosts")
		lab.Check(t, os.WriteFile(hosts, fmt.Appendf(nil, "%s api.test\n%s api.test\n", addresses[0], addresses[1]), 0o644))
		host := sandbox(t)
		stdin := node{n.Server, kubeconfig}.conf("")
		plugin := call{netns: host.Path(), stdin: stdin}.prepare()
		command := exec.Command("unshare", "--mount", "sh", "-c",
			`mount --bind "$1" /etc/hosts && exec "$2"`, "sh", hosts, plugin.Path)
		command.Env = append(plugin.Env, "PATH="+os.Getenv("PATH"))
		command.Stdin = plugin.Stdin
		lab.Check(t, machine.Do(func() error { finish(t, command).succeeds(t); return nil }))
		expectCaptured(t, host, true)
	}
}
