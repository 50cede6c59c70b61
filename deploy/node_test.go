// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/capture-cni/capture-cni/install/cri"
)

// flagValues returns a flag's values in the installer's arguments and environment.
func flagValues(set appsv1.DaemonSet, flag string) (values []string) {
	installer := set.Spec.Template.Spec.Containers[0]
	for _, arg := range installer.Args {
		if value, ok := strings.CutPrefix(arg, "--"+flag+"="); ok {
			values = append(values, value)
		}
	}
	for _, variable := range installer.Env {
		if variable.Name == "CAPTURE_CNI_"+strings.ToUpper(strings.ReplaceAll(flag, "-", "_")) {
			values = append(values, strings.Split(variable.Value, ",")...)
		}
	}
	return values
}

// TestEveryNode renders each platform in each mode: the pod has the privileges and
// the directories that it needs, and no others.
func TestEveryNode(t *testing.T) {
	for _, platform := range platforms {
		for _, mode := range []string{"", "auto", "dropin", "insert", "owned", "multus", "multus-chain"} {
			t.Run(platform+"/"+mode, func(t *testing.T) {
				t.Parallel()
				set := daemonSet(t, "platform="+platform, "mode="+mode, "guard.enabled=false", "tryKernel=false")
				if got := flagValues(set, "mode"); mode != "" && !slices.Equal(got, []string{mode}) {
					t.Errorf("--mode is %q", got)
				}
				expectRestricted(t, set.Spec.Template.Spec, platform)
				expectDirectories(t, set)
			})
		}
	}
}

func expectRestricted(t *testing.T, pod corev1.PodSpec, platform string) {
	t.Helper()
	if !pod.HostNetwork || pod.HostPID || pod.HostIPC || pod.DNSPolicy != corev1.DNSDefault {
		t.Errorf("host network %v, PIDs %v, IPC %v, DNS policy %s", pod.HostNetwork, pod.HostPID, pod.HostIPC, pod.DNSPolicy)
	}
	if seccomp := pod.SecurityContext.SeccompProfile; seccomp == nil || seccomp.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("seccomp profile %v", seccomp)
	}
	if linux := pod.SecurityContext.SELinuxOptions; (platform == "openshift") != (linux != nil && linux.Type == "spc_t") {
		t.Errorf("SELinux options %v", linux)
	}
	if pod.PriorityClassName != "system-node-critical" || len(pod.Tolerations) != 1 || pod.Tolerations[0] != (corev1.Toleration{Operator: corev1.TolerationOpExists}) {
		t.Errorf("priority %q, tolerations %v: an agent has to run on every node", pod.PriorityClassName, pod.Tolerations)
	}
	if len(pod.Containers) != 1 || len(pod.InitContainers) != 0 {
		t.Fatalf("%d containers, %d init containers", len(pod.Containers), len(pod.InitContainers))
	}
	c := pod.Containers[0].SecurityContext
	if *c.Privileged || *c.AllowPrivilegeEscalation || !*c.ReadOnlyRootFilesystem || *c.RunAsUser != 0 {
		t.Errorf("security context %v", c)
	}
	if !slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(c.Capabilities.Add) != 0 {
		t.Errorf("capabilities %v", c.Capabilities)
	}
}

// expectDirectories wants a mount of each directory that a flag names, below /host,
// and no other mount of the node's.
func expectDirectories(t *testing.T, set appsv1.DaemonSet) {
	t.Helper()
	writable := map[string]bool{}
	for _, flag := range []string{"net-dir", "bin-dir", "state-dir", "run-dir", "tmpfiles-dir"} {
		values := flagValues(set, flag)
		if len(values) == 0 && flag != "tmpfiles-dir" {
			t.Errorf("--%s is missing", flag)
		}
		for _, directory := range values {
			writable[directory] = true
		}
	}
	for _, socket := range flagValues(set, "cri-socket") {
		if socket != "none" {
			writable[path.Dir(strings.TrimPrefix(socket, "/host"))] = false
		}
	}
	pod := set.Spec.Template.Spec
	seen := 0
	for _, volume := range pod.Volumes {
		if volume.HostPath == nil {
			continue
		}
		seen++
		directory := volume.HostPath.Path
		i := slices.IndexFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume.Name })
		want, known := writable[directory]
		if !known || i < 0 || pod.Containers[0].VolumeMounts[i].MountPath != "/host"+directory || pod.Containers[0].VolumeMounts[i].ReadOnly == want {
			t.Errorf("directory %s: no flag names it, or its mount has the wrong path or mode", directory)
		}
		if *volume.HostPath.Type != corev1.HostPathDirectoryOrCreate {
			t.Errorf("directory %s: type %s", directory, *volume.HostPath.Type)
		}
	}
	if seen != len(writable) {
		t.Errorf("%d directories are mounted, %d are named", seen, len(writable))
	}
}

// TestPlatforms compares directories and sockets with the table in reference/platforms.md,
// and the sockets with those that an agent without the chart tries.
func TestPlatforms(t *testing.T) {
	_, table, _ := strings.Cut(read(t, "reference/platforms.md"), "| platform |")
	table, _, _ = strings.Cut(table, "\n\n")
	passed := map[string]bool{}
	for _, platform := range platforms {
		set := daemonSet(t, "platform="+platform)
		var row string
		for line := range strings.Lines(table) {
			if first, _, ok := strings.Cut(strings.TrimPrefix(line, "|"), "|"); ok && strings.Contains(first, "`"+platform+"`") {
				row = line
			}
		}
		var want []string
		for cell := range strings.SplitSeq(row, "`") {
			if strings.HasPrefix(cell, "/") {
				want = append(want, cell)
			}
		}
		got := slices.Concat(flagValues(set, "net-dir"), flagValues(set, "bin-dir"))
		for _, socket := range flagValues(set, "cri-socket") {
			got = append(got, strings.TrimPrefix(socket, "/host"))
			passed[strings.TrimPrefix(socket, "/host")] = true
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s uses %q; reference/platforms.md says %q", platform, got, want)
		}
	}
	if got, want := slices.Sorted(maps.Keys(passed)), slices.Sorted(slices.Values(cri.KnownSockets())); !slices.Equal(got, want) {
		t.Errorf("the platforms pass the sockets %q, and the agent knows %q", got, want)
	}
}

// TestPlatformsAreAllKnown compares the platforms of data, schema and tests.
func TestPlatformsAreAllKnown(t *testing.T) {
	var data map[string]any
	if err := yaml.UnmarshalStrict([]byte(read(t, chart+"/platforms.yaml")), &data); err != nil {
		t.Fatal(err)
	}
	schema := readSchema(t).Properties["platform"].Enum
	for name := range data {
		if !slices.Contains(platforms, name) || !slices.Contains(schema, name) {
			t.Errorf("platform %s is not in the schema, or in the tests", name)
		}
	}
	if len(data) != len(platforms) || len(schema) != len(platforms) {
		t.Errorf("%d platforms have data, the schema knows %d, the tests %d", len(data), len(schema), len(platforms))
	}
}

// TestOverrides wants the operator's values to take precedence over the platform's.
func TestOverrides(t *testing.T) {
	for _, test := range []struct {
		value, flag string
		want        []string
	}{
		{"paths.netDir=/n", "net-dir", []string{"/n"}},
		{"paths.binDirs={/a,/b}", "bin-dir", []string{"/a", "/b"}},
		{"paths.criSocket=/run/x/y.sock", "cri-socket", []string{"/host/run/x/y.sock"}},
		{"paths.criSocket=none", "cri-socket", []string{"none"}},
		{"platform=plain", "cri-socket", []string{"/host/run/containerd/containerd.sock", "/host/run/crio/crio.sock"}},
		{"paths.stateDir=/s", "state-dir", []string{"/s"}},
		{"paths.runDir=/r", "run-dir", []string{"/r"}},
		{"mode=insert", "mode", []string{"insert"}},
		{"mode=multus", "net-dir", []string{"/etc/cni/multus/net.d"}},
		{"mode=multus-chain", "net-dir", []string{"/run/multus/cni/net.d/vendor-cni-chain"}},
		{"mode=multus-chain", "tmpfiles-dir", []string{"/etc/tmpfiles.d"}},
		{"mode=multus-chain,paths.tmpfilesDir=/usr/local/tmpfiles.d", "tmpfiles-dir", []string{"/usr/local/tmpfiles.d"}},
		{"mode=multus-chain,paths.tmpfilesDir=none", "tmpfiles-dir", nil},
		{"mode=multus", "tmpfiles-dir", nil},
		{"token.ttl=1h", "token-ttl", []string{"1h"}},
		{"apiServer=https://api.example:6443", "api-server", []string{"https://api.example:6443"}},
	} {
		set := daemonSet(t, "platform=k3s", test.value, "guard.enabled=false", "tryKernel=false")
		if got := flagValues(set, test.flag); !slices.Equal(got, test.want) {
			t.Errorf("%s: --%s is %q, want %q", test.value, test.flag, got, test.want)
		}
		expectDirectories(t, set)
	}
}

// TestProbes wants probes at the address where the agent listens.
func TestProbes(t *testing.T) {
	for _, test := range []struct {
		listen, host string
		port         int32
	}{
		{"127.0.0.1:15015", "127.0.0.1", 15015},
		{"[::1]:15016", "::1", 15016},
		{"0.0.0.0:15017", "127.0.0.1", 15017},
		{"[::]:15018", "127.0.0.1", 15018},
		{"$(HOST_IP):15019", "", 15019},
		{"[$(HOST_IP)]:15020", "", 15020},
		{"192.0.2.1:15021", "192.0.2.1", 15021},
	} {
		set := daemonSet(t, "metrics.listen="+test.listen)
		c := set.Spec.Template.Spec.Containers[0]
		if c.LivenessProbe.HTTPGet.Host != test.host || c.ReadinessProbe.HTTPGet.Host != test.host || c.Ports[0].ContainerPort != test.port {
			t.Errorf("%s: probed at %q, port %d", test.listen, c.LivenessProbe.HTTPGet.Host, c.Ports[0].ContainerPort)
		}
		if c.LivenessProbe.HTTPGet.Path != "/healthz" || c.ReadinessProbe.HTTPGet.Path != "/readyz" {
			t.Errorf("probes of %s and %s", c.LivenessProbe.HTTPGet.Path, c.ReadinessProbe.HTTPGet.Path)
		}
		hasIP := slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "HOST_IP" })
		if hasIP != strings.Contains(test.listen, "HOST_IP") {
			t.Errorf("%s: HOST_IP is set: %v", test.listen, hasIP)
		}
	}
}

// TestAbsent cleans all nodes at once: a node that can't be cleaned blocks no other.
func TestAbsent(t *testing.T) {
	for _, test := range []struct {
		values, maxUnavailable string
		force                  bool
	}{
		{"state=present", "10%", false},
		{"state=present,force=true", "10%", false},
		{"state=absent", "100%", false},
		{"state=absent,force=true", "100%", true},
	} {
		set := daemonSet(t, test.values)
		rolling := set.Spec.UpdateStrategy.RollingUpdate
		if got := rolling.MaxUnavailable.String(); got != test.maxUnavailable || rolling.MaxSurge.IntValue() != 0 {
			t.Errorf("%s: maxUnavailable %s, maxSurge %s", test.values, got, rolling.MaxSurge)
		}
		if got := slices.Contains(set.Spec.Template.Spec.Containers[0].Args, "--force"); got != test.force {
			t.Errorf("%s: --force is set: %v", test.values, got)
		}
	}
}

// TestQuota renders a quota for the priority class in any namespace but kube-system,
// which needs none.
func TestQuota(t *testing.T) {
	for values, want := range map[string]bool{"": true, "resourceQuota.enabled=false": false, "priorityClassName=": false} {
		if _, got := find[corev1.ResourceQuota](t, objects(t, values), "ResourceQuota", "capture-cni-node"); got != want {
			t.Errorf("%q: a quota is rendered: %v", values, got)
		}
	}
	out, err := helm(t, "template", "capture-cni", chart, "--namespace", "kube-system", "--kube-version", "1.34.0")
	if err != nil || strings.Contains(out, "kind: ResourceQuota") {
		t.Errorf("a quota is rendered for kube-system (%v)", err)
	}
}

// TestBesideIstioCNI wants agents to stay away from istio-cni unless the operator says
// otherwise, and agent, guard and commands in their containers to agree.
func TestBesideIstioCNI(t *testing.T) {
	for values, want := range map[string]string{"": "false", "besideIstioCNI=false": "false", "besideIstioCNI=true": "true"} {
		for _, container := range daemonSet(t, values).Spec.Template.Spec.Containers {
			found := slices.ContainsFunc(container.Env, func(variable corev1.EnvVar) bool {
				return variable.Name == "CAPTURE_CNI_BESIDE_ISTIO_CNI" && variable.Value == want
			})
			if !found {
				t.Errorf("%q: container %s has no CAPTURE_CNI_BESIDE_ISTIO_CNI of %s", values, container.Name, want)
			}
		}
	}
}
