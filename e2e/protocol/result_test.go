// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

var versions = []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"}

// TestPrevResultPasses expects the bytes of a prevResult that no library would write.
func TestPrevResultPasses(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	const previous = `{"cniVersion":"1.0.0",  "x-unknown": {"b":1,"a":[1e3, 12345678901234567890]},
		"ips":[{"address":"10.77.0.2/24" }]}`
	for _, pod := range []string{"web", "batch"} {
		c := call{
			netns: sandbox(t).Path(), args: "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=" + pod,
			stdin: n.conf(`"prevResult": ` + previous + `,`),
		}
		if got := strings.TrimSuffix(c.run(t).stdout, "\n"); got != previous {
			t.Errorf("%s: prevResult became %s", pod, got)
		}
	}
}

// TestAlone runs ADD twice as the only plugin, with another interface name.
func TestAlone(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, version := range versions {
		host := sandbox(t)
		c := call{netns: host.Path(), ifname: "net1", stdin: strings.Replace(n.conf(""), "1.0.0", version, 1)}
		for range 2 {
			if result := c.run(t).succeeds(t); result["cniVersion"] != version || result["interfaces"] != nil || result["ips"] != nil {
				t.Errorf("%s: result %v", version, result)
			}
		}
		if rules := ruleset(t, host); strings.Count(rules, "redirect to :15001") != 1 {
			t.Errorf("%s:\n%s", version, rules)
		}
	}
}

// TestRuntimes sends what containerd, CRI-O and Multus send for a meshed and an
// unmeshed pod. The files hold stdin, the table CNI_ARGS.
func TestRuntimes(t *testing.T) {
	for _, runtime := range []struct {
		file, args, ifname string
		annotations        bool
	}{
		{"containerd.json", "K8S_POD_INFRA_CONTAINER_ID=4ed1;K8S_POD_UID=" + uid + ";IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=%s", "eth0", true},
		{"crio.json", "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=%s;K8S_POD_INFRA_CONTAINER_ID=4ed1;K8S_POD_UID=" + uid, "eth0", true},
		{"multus.json", "IgnoreUnknown=true;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=%s;K8S_POD_INFRA_CONTAINER_ID=4ed1;K8S_POD_UID=" + uid, "net1", false},
		{"multus-chain.json", "IgnoreUnknown=true;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=%s;K8S_POD_INFRA_CONTAINER_ID=4ed1;K8S_POD_UID=" + uid, "net1", false},
	} {
		for pod, status := range map[string]string{"web": `"sidecar.istio.io/status": "{}",`, "batch": ""} {
			t.Run(runtime.file+"/"+pod, func(t *testing.T) {
				n, host := newNode(t), sandbox(t)
				stdin, err := os.ReadFile(filepath.Join("testdata", runtime.file))
				lab.Check(t, err)
				text := strings.NewReplacer("KUBECONFIG", n.kubeconfig, "STATUS", status).Replace(string(stdin))
				for _, ifname := range []string{runtime.ifname, "net7"} { // Multus names the interface by the number of networks
					call{netns: host.Path(), ifname: ifname, args: fmt.Sprintf(runtime.args, pod), stdin: text}.run(t).succeeds(t)
					expectCaptured(t, host, pod == "web")
				}
				if count := strings.Count(ruleset(t, host), "redirect to :15001"); count > 1 {
					t.Errorf("captured %d times", count)
				}
				requests := 2
				if runtime.annotations && pod == "batch" {
					requests = 0
				}
				if got := n.Requests(); got != requests {
					t.Errorf("%d API requests, want %d", got, requests)
				}
			})
		}
	}
}

func TestVersion(t *testing.T) {
	result := call{command: "VERSION", stdin: `{"cniVersion":"1.0.0"}`}.run(t).succeeds(t)
	if got := fmt.Sprint(result["supportedVersions"]); got != fmt.Sprint(versions) {
		t.Errorf("supported versions %s", got)
	}
	call{command: "VERSION"}.run(t).succeeds(t)
}

// TestUnknownCommands expects an error for an unknown command, and the name of the
// plugin on stderr for none.
func TestUnknownCommands(t *testing.T) {
	call{command: "RESTART", stdin: `{"cniVersion":"1.0.0","name":"x"}`}.run(t).fails(t, 4, "RESTART")
	c := call{}.prepare()
	c.Env = nil
	if o := finish(t, c); o.stdout != "" || !strings.Contains(o.stderr, "CNI plugin capture-cni") {
		t.Errorf("stdout %q, stderr %q", o.stdout, o.stderr)
	}
}

// TestOwnVersion expects --version to print the version of the build.
func TestOwnVersion(t *testing.T) {
	c := call{}.prepare()
	c.Args = append(c.Args, "--version")
	info, err := buildinfo.ReadFile(c.Path)
	lab.Check(t, err)
	if o := finish(t, c); o.status != 0 || o.stdout != "capture-cni "+config.Version(info)+"\n" {
		t.Errorf("status %d, stdout %q", o.status, o.stdout)
	}
}

// TestVerbsByVersion expects CHECK from 0.4.0, and STATUS and GC from 1.1.0.
func TestVerbsByVersion(t *testing.T) {
	t.Parallel()
	n, host := newNode(t), sandbox(t)
	for _, version := range versions {
		stdin := strings.Replace(n.conf(""), "1.0.0", version, 1)
		call{netns: host.Path(), stdin: stdin}.run(t).succeeds(t)
		for verb, from := range map[string]string{"CHECK": "0.4.0", "STATUS": "1.1.0", "GC": "1.1.0"} {
			o := call{command: verb, netns: host.Path(), stdin: stdin}.run(t)
			if version >= from {
				o.silent(t)
			} else {
				o.fails(t, 1)
			}
		}
	}
	call{netns: host.Path(), stdin: `{"cniVersion":"0.2.0","name":"x","type":"capture-cni"}`}.run(t).fails(t, 1)
}

func TestStatus(t *testing.T) {
	n := newNode(t)
	status := func(conf string) outcome {
		return call{command: "STATUS", stdin: strings.Replace(conf, "1.0.0", "1.1.0", 1)}.run(t)
	}
	withoutKubeconfig := node{kubeconfig: absent(t) + "/kubeconfig"}
	status(n.conf(`"status": "strict",`)).silent(t)
	status(withoutKubeconfig.conf("")).silent(t)
	status(withoutKubeconfig.conf(`"mesh": 5,`)).silent(t)
	status(withoutKubeconfig.conf(`"status": "strict",`)).fails(t, 50, "/none/kubeconfig")
	status(withoutKubeconfig.conf(`"status": "strict", "mesh": 5,`)).fails(t, 7, `"mesh"`)
	status(node{kubeconfig: "/srv/elsewhere/kubeconfig"}.conf(`"status": "strict",`)).fails(t, 7, "/srv/elsewhere")
	if n.Requests() != 0 {
		t.Error("STATUS sent a request to the API server")
	}
}
