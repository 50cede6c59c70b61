// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestWorkloadValues sets what operators set on any DaemonSet.
func TestWorkloadValues(t *testing.T) {
	set := daemonSet(t, "updateStrategy.type=OnDelete", "daemonSetLabels.team=net", "env.GODEBUG=netdns=go",
		"seccompProfile.type=Localhost", "seccompProfile.localhostProfile=agent.json", "appArmorProfile.type=Unconfined", "paths.netnsDir=/run/docker/netns")
	if s := set.Spec.UpdateStrategy; s.Type != appsv1.OnDeleteDaemonSetStrategyType || s.RollingUpdate != nil {
		t.Errorf("update strategy %+v", s)
	}
	if set.Labels["team"] != "net" || set.Spec.Template.Labels["team"] != "" {
		t.Errorf("labels %v, of the pods %v", set.Labels, set.Spec.Template.Labels)
	}
	pod := set.Spec.Template.Spec
	if s := pod.SecurityContext; *s.SeccompProfile.LocalhostProfile != "agent.json" || s.AppArmorProfile.Type != corev1.AppArmorProfileTypeUnconfined {
		t.Errorf("security context %+v", s)
	}
	for _, c := range pod.Containers {
		if !slices.Contains(c.Env, corev1.EnvVar{Name: "GODEBUG", Value: "netdns=go"}) {
			t.Errorf("%s has variables %v", c.Name, c.Env)
		}
	}
	i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "netns" })
	guard := pod.Containers[1].VolumeMounts
	m := slices.IndexFunc(guard, func(m corev1.VolumeMount) bool { return m.Name == "netns" })
	if pod.Volumes[i].HostPath.Path != "/run/docker/netns" || guard[m].MountPath != "/run/docker/netns" {
		t.Errorf("network namespaces: volume %+v, mount %+v", pod.Volumes[i], guard[m])
	}
}

// TestLogValues expects the names that Istio's charts use.
func TestLogValues(t *testing.T) {
	for _, tt := range []struct {
		values        []string
		level, format string
	}{
		{nil, "info", "text"},
		{[]string{"global.logAsJson=true", "global.logging.level=warn"}, "warn", "json"},
		{[]string{"logging.level=debug", "global.logging.level=default:info"}, "debug", "text"},
	} {
		set := daemonSet(t, tt.values...)
		if level, format := flagValues(set, "log-level"), flagValues(set, "log-format"); !slices.Equal(level, []string{tt.level}) || !slices.Equal(format, []string{tt.format}) {
			t.Errorf("%q: level %q, format %q; want %s, %s", tt.values, level, format, tt.level, tt.format)
		}
	}
	if out, err := render(t, "global.logging.level=default:info"); err == nil || !strings.Contains(out, "set logging.level to debug, info, warn or error") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestPrometheusRule expects the alerts of the chart's file in the PrometheusRule.
func TestPrometheusRule(t *testing.T) {
	var want, got struct {
		Groups []any
	}
	if err := yaml.Unmarshal([]byte(read(t, alertRules)), &want); err != nil {
		t.Fatal(err)
	}
	for _, o := range objects(t, "metrics.prometheusRule.enabled=true", "metrics.prometheusRule.labels.release=monitoring") {
		if o.kind != "PrometheusRule" {
			continue
		}
		var rule struct {
			Metadata struct{ Labels map[string]string }
			Spec     any
		}
		if err := yaml.Unmarshal(o.text, &rule); err != nil {
			t.Fatal(err)
		}
		spec, _ := yaml.Marshal(rule.Spec)
		if err := yaml.Unmarshal(spec, &got); err != nil || rule.Metadata.Labels["release"] != "monitoring" {
			t.Errorf("%v: labels %v", err, rule.Metadata.Labels)
		}
	}
	a, _ := yaml.Marshal(want)
	b, _ := yaml.Marshal(got)
	if string(a) != string(b) {
		t.Errorf("the PrometheusRule has\n%s\nwant\n%s", b, a)
	}
}
