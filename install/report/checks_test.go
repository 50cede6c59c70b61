// SPDX-License-Identifier: Apache-2.0

package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestChecks expects of each check which findings it makes, and that each says what is wrong and what to do next.
func TestChecks(t *testing.T) {
	t.Parallel()
	certain, uncertain := CheckSockets(Calico, "seen", true), CheckSockets(Calico, "seen", false)
	if certain.Reason == uncertain.Reason || certain.Next == uncertain.Next {
		t.Errorf("a certain finding is %q, and an uncertain one %q", certain.Advised(), uncertain.Advised())
	}
	check := func(version string, mode Mode) Findings { return CheckRuntime(ParseRuntime(version), mode) }
	undone, mayBeUndone := Finding{Code: CiliumExclusive, Severity: Problem}, Finding{Code: CiliumExclusive, Severity: Note}
	balanced, another := Finding{Code: SocketBalancing, Severity: Note}, Finding{Code: RuntimeUnknown, Severity: Problem}
	noDropIns, noAnnotations := Finding{Code: NoDropIns, Severity: Problem}, Finding{Code: AnnotationsMissing, Severity: Note}
	for name, tt := range map[string]struct{ found, want Findings }{
		"Cilium, owned":                 {CheckExclusive(Owned, "seen", false, false), Findings{undone}},
		"Cilium, owned, auto is dropin": {CheckExclusive(Owned, "seen", true, false), Findings{undone}},
		"Cilium, insert":                {CheckExclusive(Insert, "seen", false, false), Findings{undone}},
		"Cilium, auto is dropin":        {CheckExclusive(Auto, "seen", true, false), nil},
		"Cilium, auto can't be dropin":  {CheckExclusive(Auto, "seen", false, true), Findings{undone}},
		"Cilium, auto may be dropin":    {CheckExclusive(Auto, "seen", false, false), Findings{mayBeUndone}},
		"Cilium, dropin":                {CheckExclusive(DropIn, "seen", false, true), nil},
		"sockets":                       {Findings{certain, uncertain}, Findings{balanced, balanced}},
		"neither containerd nor CRI-O":  {check("docker://28.1.1", DropIn), Findings{another}},
		"containerd 1.4, dropin":        {check("containerd://1.4.13", DropIn), Findings{noDropIns, noAnnotations}},
		"containerd 1.4, insert":        {check("containerd://1.4.13", Insert), Findings{noAnnotations}},
		"containerd 1.4, multus":        {check("containerd://1.4.13", Multus), nil},
		"containerd 2.0, dropin":        {check("containerd://2.0.7", DropIn), Findings{noDropIns}},
		"containerd 2.0, insert":        {check("containerd://2.0.7", Insert), nil},
		"containerd 2.1, dropin":        {check("containerd://2.1.4", DropIn), nil},
	} {
		var got Findings
		for _, one := range tt.found {
			if one.Reason == "" || one.Next == "" {
				t.Errorf("%s: %+v", name, one)
			}
			got = append(got, Finding{Code: one.Code, Severity: one.Severity})
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestFindings has one finding of each severity. A fault keeps the node from the desired state, and a line says
// of the others what they are.
func TestFindings(t *testing.T) {
	t.Parallel()
	var all Findings
	for _, severity := range []Severity{Note, Warning, Waiting, Problem, OK, NotKnown} {
		all = append(all, Finding{Code("c-" + severity), severity, "part", "broken", ""})
	}
	all[2].Next = "repair it"
	for what, tt := range map[string]struct{ got, want string }{
		"all": {
			all.String(), "note: part: broken [c-note]\nwarning: part: broken [c-warning]\npart: broken: repair it [c-waiting]\n" +
				"part: broken [c-problem]\npart: broken [c-ok]\npart: broken [c-unknown]",
		},
		"faults":          {all.Faults().Summary(), "part: broken [c-waiting]; part: broken [c-problem]"},
		"next step":       {all.Next(), "repair it"},
		"none":            {Findings{}.String() + Findings{}.Summary() + Findings{}.Next(), "no problems found"},
		"without a code":  {Finding{Reason: "broken"}.Coded(), "broken"},
		"without a cause": {Finding{Subject: "part", Next: "repair it"}.Summary(), "part"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %q, want %q", what, tt.got, tt.want)
		}
	}
	if (NodeState{Findings: all}).Good() || (NodeState{Findings: all[2:3]}).Good() || !(NodeState{Findings: all[:2]}).Good() {
		t.Error("a node is not good exactly if it has a fault")
	}
}
