// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// TestSendsToAll listens to no runtime that would take an event from the
// kubelet for it.
func TestSendsToAll(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		runtime, version string
		want             bool
	}{
		{"containerd", "1.6.20~ds1", false},
		{"containerd", "1.7.29", false},
		{"containerd", "v1.7.29", false},
		{"containerd", "1.30.0", false},
		{"containerd", "2.0.0", true},
		{"containerd", "2.0.0-rc.1", true},
		{"containerd", "v2.1.4-k3s1", true},
		{"containerd", "10.0.0", true},
		{"containerd", "2", false},
		{"containerd", "", false},
		{"containerd", "v", false},
		{"containerd", "0.0.0+unknown", false},
		{"containerd", "two.zero", false},
		{"containerd", "99999999999999999999.0", false},
		{"containerd", "2.x", false},
		{"containerd", " 2.0.0", false},
		{"cri-o", "1.29.13", false},
		{"cri-o", "1.3.0", false},
		{"cri-o", "1.30.0", true},
		{"cri-o", "v1.30.0", true},
		{"cri-o", "1.34.1-dev", true},
		{"cri-o", "2.0.0", true},
		{"cri-o", "", false},
		{"dockershim", "2.0.0", false},
		{"docker", "28.1.1", false},
		{"Containerd", "2.0.0", false},
		{"", "2.0.0", false},
		{"", "", false},
	} {
		if got := (Runtime{tt.runtime, tt.version}).SendsToAll(); got != tt.want {
			t.Errorf("%q %q: %v", tt.runtime, tt.version, got)
		}
	}
}

func TestIgnoresDropIns(t *testing.T) {
	t.Parallel()
	for version, want := range map[Runtime]bool{
		{"containerd", "1.7.28"}: true, {"containerd", "v2.0.7"}: true, {"containerd", "v2.1.0-rc.1"}: false, {"containerd", "v2.1.4-k3s1"}: false, {"containerd", "3.0"}: false,
		{"cri-o", "1.32.9"}: true, {"cri-o", "1.33.0"}: false, {"containerd", "main"}: false, {"containerd", "0.0.0+unknown"}: false, {"another", "1.0"}: false, {}: false,
	} {
		if got := version.IgnoresDropIns(); got != want {
			t.Errorf("%s: %t, want %t", fmt.Sprint(version), got, want)
		}
		if got := version.HidesDropIns(); got != (want || version.Name == "cri-o") {
			t.Errorf("%s: hides drop-ins: %t", fmt.Sprint(version), got)
		}
	}
}

// TestVersions compares all that is known of a runtime's version, around each version at which
// one of them changes.
func TestVersions(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"containerd://1.4.13":       "",
		"containerd://1.5.0":        "passes annotations",
		"containerd://v1.7.28":      "passes annotations",
		"containerd://2.0.7":        "passes annotations, sends to all",
		"containerd://2.1.0":        "passes annotations, sends to all, loads drop-ins",
		"containerd://v2.1.4-k3s1":  "passes annotations, sends to all, loads drop-ins",
		"containerd://10.0.0":       "passes annotations, sends to all, loads drop-ins",
		"containerd://main":         "",
		"cri-o://1.28.9":            "",
		"cri-o://1.29.0":            "passes annotations",
		"cri-o://1.30.0":            "passes annotations, sends to all",
		"cri-o://1.32.9":            "passes annotations, sends to all",
		"cri-o://1.33.0":            "passes annotations, sends to all, loads drop-ins",
		"cri-o://2.0.0":             "passes annotations, sends to all, loads drop-ins",
		"docker://28.1.1":           "not known",
		"":                          "not known",
		"containerd-of-another://2": "not known",
	} {
		runtime := ParseRuntime(version)
		var got []string
		passes, known := runtime.PassesAnnotations()
		for what, holds := range map[string]bool{
			"1 passes annotations": passes, "2 sends to all": runtime.SendsToAll(),
			"3 loads drop-ins": runtime.LoadsDropIns(), "4 not known": !known,
		} {
			if holds {
				got = append(got, what)
			}
		}
		slices.Sort(got)
		for i := range got {
			got[i] = got[i][2:]
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%s: %s, want %s", version, text, want)
		}
	}
}

// TestStates expects of each state whether the pod's traffic may bypass the proxy, its place
// among the others, and a next step.
func TestStates(t *testing.T) {
	t.Parallel()
	missing := []Code{Uncaptured, InjectedLater, Drifted, Obstructed, Unknown}
	for _, state := range PodStates() {
		if got, want := state.IsMissing(), slices.Contains(missing, state); got != want {
			t.Errorf("%s is missing: %t", state, got)
		}
		if state.Advice() == "" {
			t.Errorf("%s: the next step is %q", state, state.Advice())
		}
		if CompareStates(state, Captured) >= 0 && state != Captured {
			t.Errorf("%s does not come before a captured pod", state)
		}
	}
	causes := []capture.ExemptionCause{
		capture.InitContainer, capture.NoProxy, capture.ProxyDisabled, capture.OtherProxyType, capture.InjectFalse, capture.InterceptionNone, capture.NamespaceExcluded,
	}
	if got := MeshedExemptions(); !slices.Equal(got, causes) {
		t.Errorf("causes: %q", got)
	}
	for _, cause := range append(causes, capture.NotInjected) {
		if Code(cause).Advice() == "" {
			t.Errorf("exempt by %s: the next step is %q", cause, Code(cause).Advice())
		}
	}
	order := []Code{
		Uncaptured, InjectedLater, NotStarted, Drifted, Foreign, Obstructed, NotExamined, Unknown, Exempt, Changed, Outdated, Captured,
	}
	if sorted := slices.SortedFunc(slices.Values(append(PodStates(), NotExamined, NotStarted)), CompareStates); !slices.Equal(sorted, order) {
		t.Errorf("from the worst: %q", sorted)
	}
	severities := map[Code]Severity{
		Captured: OK, Uncaptured: Problem, Drifted: Problem, Obstructed: Problem, InjectedLater: Problem, NotExamined: Problem, NotStarted: Problem,
		Outdated: Note, Changed: Note, Foreign: Note, Exempt: Note, NotReported: Note, NotInMesh: Note, Gone: Waiting, NotScheduled: Waiting, Unknown: NotKnown,
	}
	for _, code := range Codes() {
		if got, want := code.Code.Severity(), severities[code.Code]; got != want {
			t.Errorf("%s is %q, want %q", code.Code, got, want)
		}
	}
	for _, state := range []Code{NotExamined, NotStarted} {
		if !state.IsMissing() {
			t.Errorf("%s is not missing", state)
		}
	}
}

// TestSkewAdvice tells an agent of another release from one that ended for another reason.
func TestSkewAdvice(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]bool{
		`unknown command "guard" for "capture-cni-node"`: true, "unknown flag: --new": true, "no such file": false, "": false,
	} {
		if got := SkewAdvice(message); strings.Contains(got, "--set image.tag=") != want || (got != "") != want {
			t.Errorf("%s: %q", message, got)
		}
	}
}

// TestUnderMultus has the modes in which Multus calls the plugin.
func TestUnderMultus(t *testing.T) {
	t.Parallel()
	for _, mode := range []Mode{Auto, DropIn, Insert, Owned, Multus, MultusChain} {
		if got, want := mode.UnderMultus(), strings.HasPrefix(string(mode), "multus"); got != want {
			t.Errorf("%s: %v", mode, got)
		}
	}
}
