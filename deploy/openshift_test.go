// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/conflist"
	"github.com/capture-cni/capture-cni/install/report"
)

// constraints are the tested fields of a SecurityContextConstraints.
type constraints struct {
	AllowHostDirVolumePlugin, AllowHostNetwork, AllowHostPorts bool
	AllowHostIPC, AllowHostPID                                 bool
	AllowPrivilegedContainer, AllowPrivilegeEscalation         bool
	AllowedCapabilities, RequiredDropCapabilities              []corev1.Capability
	RunAsUser                                                  struct {
		Type string
		UID  *int64
	}
	SeccompProfiles, Volumes, Users, Groups []string
}

// TestSCC wants constraints that admit the agent's pod and allow nothing else.
func TestSCC(t *testing.T) {
	for _, values := range []string{"", "guard.enabled=false", "guard.enabled=false,tryKernel=false", "addCapabilities={CHOWN,FOWNER}", "mode=multus-chain", "mode=insert,netconf.backend=auto"} {
		all := objects(t, "platform=openshift", values)
		scc, ok := find[constraints](t, all, "SecurityContextConstraints", "capture-cni-node")
		if !ok {
			t.Fatal("there is no SCC")
		}
		set := daemonSet(t, "platform=openshift", values)
		pod := set.Spec.Template.Spec
		container := pod.Containers[0]
		capabilities := slices.Clone(container.SecurityContext.Capabilities.Add)
		for _, other := range slices.Concat(pod.Containers[1:], pod.InitContainers) {
			for _, capability := range other.SecurityContext.Capabilities.Add {
				if !slices.Contains(capabilities, capability) {
					capabilities = append(capabilities, capability)
				}
			}
		}
		if scc.AllowHostIPC || scc.AllowHostPID || scc.AllowPrivilegedContainer || scc.AllowPrivilegeEscalation || len(scc.Users)+len(scc.Groups) != 0 {
			t.Errorf("the SCC allows too much: %+v", scc)
		}
		if scc.AllowHostNetwork != pod.HostNetwork || scc.AllowHostPorts != (len(container.Ports) > 0) || !scc.AllowHostDirVolumePlugin {
			t.Errorf("the SCC does not match the pod: %+v", scc)
		}
		if !slices.Equal(scc.AllowedCapabilities, capabilities) ||
			!slices.Equal(scc.RequiredDropCapabilities, container.SecurityContext.Capabilities.Drop) {
			t.Errorf("capabilities: %+v, the pod's are %+v", scc, container.SecurityContext.Capabilities)
		}
		if scc.RunAsUser.Type != "MustRunAs" || *scc.RunAsUser.UID != *container.SecurityContext.RunAsUser {
			t.Errorf("users: %+v", scc.RunAsUser)
		}
		if !slices.Equal(scc.SeccompProfiles, []string{"runtime/default"}) || !slices.Equal(scc.Volumes, []string{"hostPath", "projected"}) {
			t.Errorf("seccomp %q, volumes %q", scc.SeccompProfiles, scc.Volumes)
		}
	}
}

// TestNetworkAttachment renders the attachment in the mode multus only.
func TestNetworkAttachment(t *testing.T) {
	for values, want := range map[string]bool{"": false, "platform=openshift": true, "mode=multus": true, "platform=openshift,mode=insert": false, "platform=openshift,mode=multus-chain": false} {
		all := objects(t, values)
		network, got := find[struct{ Metadata struct{ Namespace string } }](t, all, "NetworkAttachmentDefinition", "istio-cni")
		if got != want || got && network.Metadata.Namespace != "default" {
			t.Errorf("%q: an attachment is rendered: %v, in %q", values, got, network.Metadata.Namespace)
		}
	}
}

// TestSharedIdentityOfOpenShift refuses, unless the operator says otherwise, a pod whose
// containers all have the uid of their namespace: in the agents' entry and in Multus'.
func TestSharedIdentityOfOpenShift(t *testing.T) {
	for values, want := range map[string]string{
		"platform=openshift":                             "refuse",
		"platform=openshift,netconf.sharedProxyUID=warn": "warn",
		"platform=openshift,netconf.ipv6=never":          "refuse",
		"platform=openshift,mode=insert":                 "refuse",
		"platform=plain,mode=multus":                     "",
		"platform=k3s":                                   "",
		"pools[0].name=x,pools[0].nodeSelector.x=y,pools[0].platform=openshift,pools[0].mode=insert": "",
	} {
		all := objects(t, values)
		entries := map[string]string{"the agents'": netConf(t, all)}
		if network, ok := find[struct{ Spec struct{ Config string } }](t, all, "NetworkAttachmentDefinition", "istio-cni"); ok {
			entries["Multus'"] = network.Spec.Config
		}
		for whose, text := range entries {
			var entry struct{ SharedProxyUID, IPv6 string }
			if err := json.Unmarshal([]byte(text), &entry); err != nil || entry.SharedProxyUID != want || (entry.IPv6 != "") != strings.Contains(values, "ipv6") {
				t.Errorf("%s: %s entry is %s, want sharedProxyUID %q (%v)", values, whose, text, want, err)
			}
		}
	}
	set, _ := find[appsv1.DaemonSet](t, objects(t, "pools[0].name=x,pools[0].nodeSelector.x=y,pools[0].platform=openshift,pools[0].mode=insert"), "DaemonSet", "capture-cni-node-x")
	if got := fleet.NetConf(set.Spec.Template.Spec.Containers[0]); got != `{"sharedProxyUID":"refuse"}` {
		t.Errorf("a pool's entry is %s", got)
	}
}

// TestChainExclusions wants the policy on evictions to except the namespaces that the agent
// excludes by default in mode multus-chain.
func TestChainExclusions(t *testing.T) {
	for values, keys := range map[string]string{
		"mode=multus-chain": "{}",
		"mode=multus-chain,netconf.excludeNamespaces={a,b-*}": `{"excludeNamespaces": ["a", "b-*"]}`,
	} {
		entry, err := conflist.ParseEntry([]byte(keys), report.MultusChain, config.StateDirectory, config.RunDirectory)
		if err != nil || len(entry.Conf.ExcludeNamespaces) == 0 {
			t.Fatalf("%s: the agent excludes %q, %v", keys, entry.Conf.ExcludeNamespaces, err)
		}
		policy, _ := find[admissionv1.ValidatingAdmissionPolicy](t, objects(t, "guard.policy=evict", values), "ValidatingAdmissionPolicy", "capture-cni-evict")
		want := "['" + strings.Join(append(entry.Conf.ExcludeNamespaces, "capture-cni"), "','") + "']"
		if !slices.ContainsFunc(policy.Spec.Validations, func(v admissionv1.Validation) bool { return strings.Contains(v.Expression, want) }) {
			t.Errorf("%s: no expression has the list %s: %+v", values, want, policy.Spec.Validations)
		}
	}
}
