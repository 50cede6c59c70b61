// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/install/guard"
	"github.com/capture-cni/capture-cni/install/kube"
	"github.com/capture-cni/capture-cni/install/metrics"
	"github.com/capture-cni/capture-cni/install/node"
	"github.com/capture-cni/capture-cni/install/pods"
	"github.com/capture-cni/capture-cni/install/telemetry"
)

const (
	alertRules = "chart/alerts.yaml"
	alertTests = "alerts/capture-cni.test.yaml"
	daysTests  = "alerts/days.test.yaml"
	dashboard  = "chart/dashboard.json"
)

// TestAlerts runs promtool, which is in Debian's package prometheus.
func TestAlerts(t *testing.T) {
	lab.RequireProgram(t, "promtool")
	for _, args := range [][]string{{"check", "rules", alertRules}, {"test", "rules", alertTests, daysTests}} {
		if out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %q: %v\n%s", args, err, out)
		}
	}
}

// TestAlertsAreTested wants a test in which the alert fires, with each value that it names,
// and one in which it does not, of every alert.
func TestAlertsAreTested(t *testing.T) {
	var rules struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	type alertCases struct {
		Tests []struct {
			Input []struct{ Series string } `json:"input_series"`
			Cases []struct {
				Alertname string
				Expected  []struct {
					Labels map[string]string `json:"exp_labels"`
				} `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		}
	}
	var tests, days alertCases
	for name, into := range map[string]any{alertRules: &rules, alertTests: &tests, daysTests: &days} {
		if err := yaml.Unmarshal([]byte(read(t, name)), into); err != nil {
			t.Fatal(err)
		}
	}
	fires, given, silent := map[string][]string{}, map[string][]string{}, map[string][]string{} // by alert: labels like Prometheus writes them
	for _, test := range append(tests.Tests, days.Tests...) {
		for _, c := range test.Cases {
			for _, alert := range c.Expected {
				for key, value := range alert.Labels {
					fires[c.Alertname] = append(fires[c.Alertname], fmt.Sprintf("%s=%q", key, value))
				}
			}
			for _, input := range test.Input {
				if len(c.Expected) > 0 {
					given[c.Alertname] = append(given[c.Alertname], seriesLabel.FindAllString(input.Series, -1)...)
				} else {
					silent[c.Alertname] = append(silent[c.Alertname], seriesLabel.FindAllString(input.Series, -1)...)
				}
			}
		}
	}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			if len(fires[rule.Alert]) == 0 || len(silent[rule.Alert]) == 0 {
				t.Errorf("%s: there is no test in which it fires, or none in which it does not", rule.Alert)
			}
			expectAlternatives(t, rule.Alert, rule.Expr, "=~", fires[rule.Alert], given[rule.Alert])
			expectAlternatives(t, rule.Alert, rule.Expr, "!~", silent[rule.Alert], nil)
			expectMetrics(t, rule.Alert, rule.Expr)
		}
	}
}

var seriesLabel = regexp.MustCompile(`[a-z_]+="[^"]*"`)

// expectAlternatives wants each alternative of a query's matchers among labels: an alert
// that is tested with one state only says nothing about the others. A label that the query
// sums over is among those of the series that are given.
func expectAlternatives(t *testing.T, alert, query, operator string, labels, given []string) {
	t.Helper()
	for _, matcher := range regexp.MustCompile(`([a-z_]+)`+operator+`"([^"]*)"`).FindAllStringSubmatch(query, -1) {
		of := labels
		if !slices.ContainsFunc(labels, func(label string) bool { return strings.HasPrefix(label, matcher[1]+"=") }) {
			of = slices.Concat(labels, given)
		}
		for alternative := range strings.SplitSeq(matcher[2], "|") {
			matches := regexp.MustCompile(fmt.Sprintf(`^%s="%s"$`, matcher[1], alternative)).MatchString
			if !slices.ContainsFunc(of, matches) {
				t.Errorf("%s: no test has %s%s%q", alert, matcher[1], operator, alternative)
			}
		}
	}
}

// TestDashboard wants only queries of metrics that the agent has.
func TestDashboard(t *testing.T) {
	var board struct {
		Title  string
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, dashboard)), &board); err != nil {
		t.Fatal(err)
	}
	if board.Title == "" || len(board.Panels) == 0 {
		t.Fatal("the dashboard is empty")
	}
	for _, panel := range board.Panels {
		if len(panel.Targets) == 0 {
			t.Errorf("panel %q has no query", panel.Title)
		}
		for _, target := range panel.Targets {
			expectMetrics(t, panel.Title, target.Expr)
		}
	}
}

var (
	ourMetric       = regexp.MustCompile(`capture_cni_[a-z_]+`)
	otherMetric     = regexp.MustCompile(`\b(kube_(daemonset|node|pod)_[a-z_]+|up)\{?`) // of kube-state-metrics and of Prometheus
	histogramSuffix = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// allMetrics returns those of agent and guard.
func allMetrics() []metrics.Metric {
	return slices.Concat(node.KeeperMetrics(), kube.Metrics(), pods.Metrics(), telemetry.Metrics(), guard.Metrics(), kube.EvictorMetrics())
}

// expectMetrics wants a query of documented metrics.
func expectMetrics(t *testing.T, where, query string) {
	t.Helper()
	documented := map[string]bool{}
	for _, m := range allMetrics() {
		documented[m.Name] = true
	}
	names := ourMetric.FindAllString(query, -1)
	if len(names) == 0 && !otherMetric.MatchString(query) {
		t.Errorf("%s: no metric in %q", where, query)
	}
	for _, name := range names {
		if !documented[name] && !documented[histogramSuffix.ReplaceAllString(name, "")] {
			t.Errorf("%s: the agent has no metric %s", where, name)
		}
	}
}

// noAlert are the metrics that no alert reads, each with the reason.
var noAlert = map[string]string{
	"capture_cni_other_mesh_entry":                      "refused is entry of node_good; kept and allowed are preflight_problems, and adds_total as refused",
	"capture_cni_token_issued_timestamp_seconds":        "information: token_expires says when it ends",
	"capture_cni_credentials_checked_timestamp_seconds": "information: a check that fails is node_good, or token_expires in the end",
	"capture_cni_taint":                                 "kube_node_spec_taint, which is there without an agent",
	"capture_cni_runtime_info":                          "information",
	"capture_cni_token_requests_total":                  "information",
	"capture_cni_token_rejected_total":                  "the agent replaces such a token; one that it can't replace is token_expires",
	"capture_cni_pod_requests_total":                    "information: the plugin then asks the API server; without an answer it is adds_total as lookup",
	"capture_cni_pods_watched":                          "information",
	"capture_cni_pods_connections_refused_total":        "the plugin then asks the API server; without an answer it is adds_total as lookup",
	"capture_cni_add_stage_seconds":                     "information",
	"capture_cni_log_lines_dropped_total":               "information: adds_total counts each record",
	"capture_cni_build_info":                            "information",
	"capture_cni_netconf_info":                          "information",
	"capture_cni_exempt_pods":                           "information: the workload's own choice",
	"capture_cni_pod_updates_total":                     "a failed update keeps rules that capture; the Event CaptureNote and status name the pod",
	"capture_cni_connections_total":                     "information: what is exempt is the workload's own choice",
	"capture_cni_pod_uncaptured_seconds":                "pod_repairs_total, or pods as uncaptured where nothing is repaired",
	"capture_cni_add_seconds":                           "information",
	"capture_cni_failed_pods_total":                     "adds_total as failed, of the same pods",
	"capture_cni_api_answered_timestamp_seconds":        "the control plane's own alerts; a pod that needs the API server is adds_total as lookup",
}

// TestEveryFaultAlerts wants each metric read by an alert, or a reason why none reads it.
func TestEveryFaultAlerts(t *testing.T) {
	var rules struct {
		Groups []struct{ Rules []struct{ Expr string } }
	}
	if err := yaml.Unmarshal([]byte(read(t, alertRules)), &rules); err != nil {
		t.Fatal(err)
	}
	alerted, exempt := map[string]bool{}, maps.Clone(noAlert)
	for _, rule := range rules.Groups[0].Rules {
		for _, name := range ourMetric.FindAllString(rule.Expr, -1) {
			alerted[name] = true
		}
	}
	for _, m := range allMetrics() {
		if reason := exempt[m.Name]; alerted[m.Name] == (reason != "") {
			t.Errorf("%s (%s): read by an alert: %v; the reason why none reads it: %q", m.Name, m.Help, alerted[m.Name], reason)
		}
		delete(exempt, m.Name)
	}
	if len(exempt) > 0 {
		t.Errorf("there are no metrics %v", exempt)
	}
}

var sentence = regexp.MustCompile(`(?s)^[^*].*\.$`)

// TestRunbook expects a section of the runbook for each alert and none for others: what
// it means, where to look, and what to do.
func TestRunbook(t *testing.T) {
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, alertRules)), &rules); err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, section := range strings.Split(read(t, "runbook.md"), "\n## ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		sections[name] = text
	}
	for _, rule := range rules.Groups[0].Rules {
		section := sections[rule.Alert]
		delete(sections, rule.Alert)
		meaning, steps, _ := strings.Cut(strings.TrimSpace(section), "\n\n")
		if !sentence.MatchString(meaning) {
			t.Errorf("runbook.md: the section %s does not begin with what the alert means: %q", rule.Alert, meaning)
		}
		for _, part := range []string{"**Check** ", "\n**Then** "} {
			if !strings.Contains(steps, part) {
				t.Errorf("runbook.md: the section %s lacks %s", rule.Alert, part)
			}
		}
		const page = "https://github.com/capture-cni/capture-cni/blob/main/deploy/runbook.md#"
		if got := rule.Annotations["runbook_url"]; got != page+strings.ToLower(rule.Alert) {
			t.Errorf("%s: runbook_url is %q", rule.Alert, got)
		}
	}
	for name := range sections {
		t.Errorf("runbook.md: there is no alert %s", name)
	}
}
