// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// umbrella returns another chart, which has ours as a dependency that it turns on and off
// by `enabled`, and has keys of its own and global ones.
func umbrella(t *testing.T) string {
	t.Helper()
	umbrella := t.TempDir()
	if err := os.CopyFS(filepath.Join(umbrella, "charts", "capture-cni"), os.DirFS(chart)); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"Chart.yaml":  "apiVersion: v2\nname: umbrella\nversion: 1.0.0\ndependencies:\n  - {name: capture-cni, version: 0.x.x, condition: capture-cni.enabled}\n",
		"values.yaml": "theirs: {a: 1}\nglobal: {team: mesh, imageRegistry: x}\ncapture-cni: {enabled: true, platform: gke}\n",
	} {
		if err := os.WriteFile(filepath.Join(umbrella, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return umbrella
}

func TestUmbrella(t *testing.T) {
	t.Parallel()
	for enabled, agents := range map[string]int{"true": 1, "false": 0} {
		out, err := helm(t, "template", "release", umbrella(t), "--namespace", namespace, "--kube-version", "1.34.0", "--set", "capture-cni.enabled="+enabled)
		if err != nil || strings.Count(out, "\nkind: DaemonSet\n") != agents {
			t.Errorf("enabled=%s: %v\n%.600s", enabled, err, out)
		}
	}
}

// TestAffinity leaves out nodes that run no agent, unless the operator has an affinity.
func TestAffinity(t *testing.T) {
	t.Parallel()
	terms := daemonSet(t).Spec.Template.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if len(terms) != 1 || len(terms[0].MatchExpressions) != 2 || terms[0].MatchExpressions[0].Operator != corev1.NodeSelectorOpNotIn {
		t.Errorf("by default: %+v", terms)
	}
	own := daemonSet(t, `affinity={"podAntiAffinity": {}}`).Spec.Template.Spec.Affinity
	if own.NodeAffinity != nil || own.PodAntiAffinity == nil {
		t.Errorf("with an affinity: %+v", own)
	}
}

// TestDashboardConfigMap has the dashboard as it is.
func TestDashboardConfigMap(t *testing.T) {
	t.Parallel()
	if _, made := find[corev1.ConfigMap](t, objects(t), "ConfigMap", "capture-cni-dashboard"); made {
		t.Error("it is made by default")
	}
	made, ok := find[corev1.ConfigMap](t, objects(t, "metrics.dashboard.enabled=true"), "ConfigMap", "capture-cni-dashboard")
	if !ok || made.Labels["grafana_dashboard"] != "1" || made.Data["capture-cni.json"] != read(t, dashboard) {
		t.Errorf("labels %v, %d bytes", made.Labels, len(made.Data["capture-cni.json"]))
	}
}

// TestNotes names no path of the repository: who installs a release has none.
func TestNotes(t *testing.T) {
	t.Parallel()
	notes := regexp.MustCompile(`https://\S+`).ReplaceAllString(read(t, chart+"/templates/NOTES.txt"), "")
	if strings.Contains(notes, "deploy/") {
		t.Errorf("%s", notes)
	}
	if !strings.Contains(notes, "delete leases") || !strings.Contains(notes, "pilot.cni.enabled=true") {
		t.Errorf("the notes are not complete:\n%s", notes)
	}
}
