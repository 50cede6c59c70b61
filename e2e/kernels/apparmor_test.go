// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// allBut is a profile that allows everything but what its rule denies.
func allBut(name, denial string) string {
	return fmt.Sprintf("profile %s flags=(attach_disconnected,mediate_deleted) {\n network, capability, file, mount, umount, signal, ptrace, unix,\n %s,\n}\n", name, denial)
}

// TestAppArmor has a kernel that enforces profiles. Agent, guard and the test of the backend
// work under the one that containerd gives containers by default. What another profile denies
// is explained, and harms no pod outside the mesh; a meshed one starts captured or not at all,
// once the plugin is installed.
func TestAppArmor(t *testing.T) {
	suite, err := buildSuite(t).WithAppArmor(t.Context(), t.TempDir(), kept)
	if err != nil {
		t.Fatal(err)
	}
	guest := Guest{Image: fetchAny(t), Suite: suite, Append: "apparmor=1 security=apparmor"}
	const (
		site   = "site"
		plugin = "plugin /{opt/cni/bin,programs}/capture-cni"
	)
	tests := []struct {
		Confinement
		expect func(*testing.T, Confined)
	}{
		{
			Confinement{Name: "the agent may not write net.d", Profiles: allBut(site, "audit deny /{host/,}etc/cni/net.d/** w"), Agent: site},
			notInstalled("/host/etc/cni/net.d", "/opt/cni/bin/capture-cni", "/opt/cni/bin/capture-cni-lookup"),
		},
		{
			Confinement{Name: "the agent may not write bin", Profiles: allBut(site, "audit deny /{host/,}opt/cni/bin/** w"), Agent: site},
			notInstalled("/host/opt/cni/bin"),
		},
		{Confinement{Name: "containerd's default", Agent: ContainerdProfile, Guard: ContainerdProfile, Guarded: true}, works},
		{Confinement{Name: "the plugin lacks NET_ADMIN", Profiles: allBut(plugin, "audit deny capability net_admin"), SameAgent: true}, failsClosed(`capname="net_admin"`)},
		{Confinement{Name: "the plugin lacks SYS_ADMIN", Profiles: allBut(plugin, "audit deny capability sys_admin"), SameAgent: true}, failsClosed(`capname="sys_admin"`)},
		{Confinement{Name: "the plugin lacks netlink", Profiles: allBut(plugin, "audit deny network netlink"), SameAgent: true}, failsClosed(`family="netlink"`)},
		{Confinement{Name: "the guard lacks NET_ADMIN", Profiles: allBut(site, "audit deny capability net_admin"), Guard: site, SameAgent: true, Guarded: true}, notRepaired(`capname="net_admin"`)},
		{Confinement{Name: "the guard lacks SYS_ADMIN", Profiles: allBut(site, "audit deny capability sys_admin"), Guard: site, SameAgent: true, Guarded: true}, notRepaired(`capname="sys_admin"`)},
		{Confinement{Name: "no profile", SameAgent: true, Guarded: true}, works},
	}
	var confinements []Confinement
	for _, tt := range tests {
		confinements = append(confinements, tt.Confinement)
	}
	run, err := Confine(confinements)
	if err != nil {
		t.Fatal(err)
	}
	// Else the kernel leaves out lines of its log.
	guest.Job = Job{Sysctls: map[string]string{"kernel/printk_ratelimit": "0"}, Runs: []Run{run}}
	results, err := ConfinedBy(boot(t, guest)[0])
	if err != nil || len(results) != len(tests) {
		t.Fatalf("%d of %d confinements: %v", len(results), len(tests), err)
	}
	for i, tt := range tests {
		t.Run(tt.Name, func(t *testing.T) {
			result := results[i]
			attempt := Attempt{Unmeshed: result.Unmeshed, Add: result.Add, Left: result.Left, Del: result.Del, LeftAfterDel: result.LeftAfterDel}
			attempt.expectHarmless(t)
			tt.expect(t, result)
			if t.Failed() {
				t.Logf("agent (%s):\n%s\nguard (%s):\n%s\ndenials:\n%s", result.Agent, result.AgentLog, result.Guard, result.GuardLog, strings.Join(result.Denials, "\n"))
			}
		})
	}
}

// works expects a pod that is captured, and again after its rules were deleted, and not one
// denial.
func works(t *testing.T, c Confined) {
	t.Helper()
	if c.Add != "" || c.Answer != "proxy" || c.Repaired != "proxy" || len(c.Denials) > 0 {
		t.Errorf("ADD: %s\nanswers: %q, after a repair %q", c.Add, c.Answer, c.Repaired)
	}
	if want := ContainerdProfile + " (enforce)"; c.Agent != want || c.Guard != want && c.Guard != "unconfined" {
		t.Errorf("the agent is confined by %s, the guard by %s", c.Agent, c.Guard)
	}
}

// notInstalled expects an agent that explains which directory it may not write to, and
// installs no more than these files.
func notInstalled(directory string, files ...string) func(*testing.T, Confined) {
	return func(t *testing.T, c Confined) {
		t.Helper()
		for _, want := range []string{"the mode of " + directory + " allows it, and AppArmor confines the agent with the profile site (enforce)", "appArmorProfile.type=Unconfined"} {
			if !strings.Contains(c.AgentLog, want) {
				t.Errorf("the agent's log does not say %q", want)
			}
		}
		if c.Answer != "direct" || !slices.Equal(c.Files, files) {
			t.Errorf("the answer is %q, the agent has left %q", c.Answer, c.Files)
		}
		expectDenial(t, c, `profile="site" name="`+directory+"/")
	}
}

// failsClosed expects a meshed pod that does not start, with an error that names the
// plugin's profile.
func failsClosed(denial string) func(*testing.T, Confined) {
	return func(t *testing.T, c Confined) {
		t.Helper()
		if !strings.Contains(c.Add, "AppArmor confines this process with the profile plugin (enforce)") {
			t.Errorf("ADD: %s", c.Add)
		}
		expectDenial(t, c, `profile="plugin"`, denial)
	}
}

// notRepaired expects a guard that says why it can't examine a pod.
func notRepaired(denial string) func(*testing.T, Confined) {
	return func(t *testing.T, c Confined) {
		t.Helper()
		if c.Answer != "proxy" || c.Repaired != "direct" || !strings.Contains(c.GuardLog, "AppArmor confines this process with the profile site (enforce)") {
			t.Errorf("answers: %q, after a repair %q", c.Answer, c.Repaired)
		}
		expectDenial(t, c, `profile="site"`, denial)
	}
}

// expectDenial expects a line of the kernel's log with all parts.
func expectDenial(t *testing.T, c Confined, parts ...string) {
	t.Helper()
	if !slices.ContainsFunc(c.Denials, func(line string) bool {
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) })
	}) {
		t.Errorf("the kernel denies no %q", parts)
	}
}
