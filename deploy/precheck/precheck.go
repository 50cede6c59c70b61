// SPDX-License-Identifier: Apache-2.0

package precheck

import (
	"fmt"
	"maps"
	"slices"

	"github.com/capture-cni/capture-cni/install/report"
)

// Report contains the results of the checks, and the commands or the guide by which to install or
// upgrade. With a problem or an unknown part, it has no commands.
type Report struct {
	Results  report.Findings   `json:"results"`
	Values   map[string]string `json:"values"`          // values of the chart that the checks have chosen
	Guide    string            `json:"guide,omitempty"` // the guide to follow instead of Commands
	Commands []string          `json:"commands"`        // commands that create or label the namespace, and that install or upgrade

	namespace string
}

// Good reports whether no obstacle is known.
func (r *Report) Good() bool { return len(r.Results.Of(report.Problem)) == 0 }

func (r *Report) add(severity report.Severity, code report.Code, subject, next, format string, args ...any) {
	r.Results = append(r.Results, report.Finding{
		Code: code, Severity: severity, Subject: subject, Reason: fmt.Sprintf(format, args...), Next: next,
	})
}

func (r *Report) ok(subject, format string, args ...any) {
	r.add(report.OK, report.Checked, subject, "", format, args...)
}

// join adds a finding of a check that precheck shares with preflight, and sets the finding's subject.
func (r *Report) join(subject string, found report.Finding) {
	found.Subject = subject
	r.Results = append(r.Results, found)
}

// Check returns the results of all checks for an installation in a namespace, and the commands or the
// guide by which to install or upgrade.
func Check(c *Cluster, namespace string) *Report {
	r := &Report{Values: map[string]string{}, namespace: namespace}
	r.checkVersion(c.Version)
	r.checkNodes(c)
	r.checkInjectors(c)
	r.checkMeshes(c)
	r.checkCilium(c)
	r.checkCalico(c)
	r.checkNamespace(c)
	r.checkInstalled(c)
	for _, err := range c.Unknown {
		r.add(report.NotKnown, report.PermissionMissing, "permissions", "ask for the permission, or check this by hand", "%v", err)
	}
	switch {
	case r.Guide != "" || !r.Good() || len(c.Unknown) > 0:
		r.Commands = nil
	case c.Installed == nil:
		r.Commands = append(r.Commands, r.helm("install", "capture-cni", "deploy/chart"))
	case c.Installed.Release != "" && len(c.Installed.Pinned) == 0:
		upgrade := r.helm("upgrade", c.Installed.Release, "deploy/chart", "--reset-then-reuse-values", "--set", "image.tag=")
		r.Commands = append(r.Commands, upgrade)
	default:
		r.Guide, r.Commands = "deploy/guides/upgrade.md", nil
	}
	return r
}

// helm returns a Helm command with the values that the checks have chosen.
func (r *Report) helm(words ...string) string {
	words = append([]string{"-n", r.namespace}, words...)
	for _, key := range slices.Sorted(maps.Keys(r.Values)) {
		words = append(words, "--set", key+"="+r.Values[key])
	}
	return report.Command(append([]string{"helm"}, words...)...)
}
