// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/metrics"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/capture"
)

// guideTexts returns the operators' guides by path.
func guideTexts(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("guides/*.md")
	if err != nil || len(paths) == 0 {
		t.Fatalf("there are no guides (%v)", err)
	}
	texts := map[string]string{}
	for _, path := range append(paths, "runbook.md") {
		texts[path] = read(t, path)
	}
	return texts
}

// TestStatesAreExplained wants a row of the findings for each state of a pod, and for each
// cause of the state exempt.
func TestStatesAreExplained(t *testing.T) {
	findings := read(t, "reference/findings.md")
	var words []string
	for _, state := range report.PodStates() {
		words = append(words, string(state))
	}
	for _, cause := range report.MeshedExemptions() {
		words = append(words, string(cause))
	}
	for _, word := range words {
		if !strings.Contains(findings, "\n|`"+word+"`|") {
			t.Errorf("reference/findings.md has no row for %s", word)
		}
	}
}

var (
	codeBlock    = regexp.MustCompile("(?ms)^```.*?^```")
	codeSpan     = regexp.MustCompile("`([^`\n]+)`")
	continuation = regexp.MustCompile(`\\\n\s*`)
)

// commands returns the lines of a guide's code blocks, with continuation lines
// joined, and its code spans.
func commands(guide string) []string {
	var found []string
	for _, block := range codeBlock.FindAllString(guide, -1) {
		found = append(found, strings.Split(continuation.ReplaceAllString(block, " "), "\n")...)
	}
	return append(found, spans(guide)...)
}

func spans(guide string) []string {
	var found []string
	for _, match := range codeSpan.FindAllStringSubmatch(codeBlock.ReplaceAllString(guide, ""), -1) {
		found = append(found, match[1])
	}
	return found
}

// expectSome fails if a test found nothing to check.
func expectSome(t *testing.T, count int) {
	t.Helper()
	if count == 0 {
		t.Error("the guides mention nothing of this kind: does the test still find it?")
	}
}

var (
	ownCommand = regexp.MustCompile(`(?:^|[\s=/])(capture-cni-node|kubectl capture-cni) (run|uninstall|verify|preflight|render|validate|precheck|status|list|explain|trace|test|report)\b(.*)`)
	flagName   = regexp.MustCompile(`--[a-z][a-z-]*`)
)

// TestGuidesKnowFlags looks up each flag in the help of the command, of the agent or of
// the plugin of kubectl. A flag that is alone in a code span can be one of any command's.
func TestGuidesKnowFlags(t *testing.T) {
	known := map[string]map[string]bool{}
	addFlags(t, known, "capture-cni-node", agent(t), "run", "uninstall", "verify", "preflight", "render", "validate", "explain")
	addFlags(t, known, "kubectl capture-cni", plugin(t), "precheck", "status", "list", "explain", "trace", "test", "report")
	count := 0
	for path, guide := range guideTexts(t) {
		for _, command := range commands(guide) {
			match := ownCommand.FindStringSubmatch(command)
			if match == nil {
				continue
			}
			for _, flag := range flagName.FindAllString(match[3], -1) {
				count++
				if !known[match[1]+" "+match[2]][flag] {
					t.Errorf("%s: %s %s has no flag %s", path, match[1], match[2], flag)
				}
			}
		}
		for _, span := range spans(guide) {
			foreign := []string{"--set", "--wait", "--reuse-values", "--register-with-taints"} // Helm's, the kubelet's
			if flag := flagName.FindString(span); strings.HasPrefix(span, "--") && !slices.Contains(foreign, flag) {
				count++
				if !slices.ContainsFunc(slices.Collect(maps.Values(known)), func(flags map[string]bool) bool { return flags[flag] }) {
					t.Errorf("%s: no command of ours has the flag %s", path, flag)
				}
			}
		}
	}
	expectSome(t, count)
}

// addFlags adds the flags of a program's commands.
func addFlags(t *testing.T, known map[string]map[string]bool, name, program string, commands ...string) {
	t.Helper()
	ofAll, failed := exec.CommandContext(t.Context(), program, "--help").CombinedOutput()
	for _, command := range commands {
		own, err := exec.CommandContext(t.Context(), program, command, "--help").CombinedOutput()
		if err != nil || failed != nil {
			t.Fatalf("%v, %v\n%s%s", err, failed, own, ofAll)
		}
		flags := map[string]bool{}
		for _, flag := range flagName.FindAllString(string(own)+string(ofAll), -1) {
			flags[flag] = true
		}
		known[name+" "+command] = flags
	}
}

var (
	setting  = regexp.MustCompile(`--set(?:-json)? '?([A-Za-z][\w.-]*)=`)
	helmLine = regexp.MustCompile(`\bhelm\b.*\bcapture-cni\b`)
	dotted   = regexp.MustCompile(`^([A-Za-z]+)\.[A-Za-z][\w.-]*`)
)

// TestGuidesKnowValues looks up the chart's values in helm's command lines, in
// --set, and in code spans that begin like a value.
func TestGuidesKnowValues(t *testing.T) {
	var values map[string]any
	if err := yaml.UnmarshalStrict([]byte(read(t, chart+"/values.yaml")), &values); err != nil {
		t.Fatal(err)
	}
	count := 0
	expect := func(path, name string) {
		count++
		if !hasValue(values, name) {
			t.Errorf("%s: the chart has no value %s", path, name)
		}
	}
	for path, guide := range guideTexts(t) {
		for _, command := range commands(guide) {
			if helmLine.MatchString(command) || strings.HasPrefix(command, "--set ") {
				for _, match := range setting.FindAllStringSubmatch(command, -1) {
					expect(path, match[1])
				}
			}
		}
		for _, span := range spans(guide) {
			match := dotted.FindStringSubmatch(span)
			if match == nil || span == "taint.namespace=capture-cni" { // istiod's
				continue
			}
			if _, ours := values[match[1]].(map[string]any); ours && match[1] != "global" { // which Istio's charts have, too
				expect(path, match[0])
			}
		}
	}
	expectSome(t, count)
}

// hasValue reports whether the chart reads a value: one of values.yaml, a key of
// the plugin's entry, or any key of an object whose keys the operator chooses.
func hasValue(values map[string]any, name string) bool {
	first, rest, _ := strings.Cut(name, ".")
	value, ok := values[first]
	switch nested, isMap := value.(map[string]any); {
	case !ok:
		return false
	case first == "netconf":
		return rest == "" || hasKey(config.Keys(new(config.NetConf)), rest)
	case rest == "" || slices.Contains([]string{"nodeSelector", "podLabels", "podAnnotations", "seLinuxOptions", "affinity", "daemonSetLabels", "env", "appArmorProfile"}, first):
		return true
	default:
		return isMap && hasValue(nested, rest)
	}
}

func hasKey(keys []config.Key, name string) bool {
	first, rest, _ := strings.Cut(name, ".")
	i := slices.IndexFunc(keys, func(key config.Key) bool { return key.Name == first })
	return i >= 0 && (rest == "" || hasKey(keys[i].Keys, rest))
}

// TestGuidesKnowKeys wants neither an error nor a warning of any plugin entry.
func TestGuidesKnowKeys(t *testing.T) {
	count := 0
	for path, guide := range guideTexts(t) {
		for rest := guide; ; {
			at := strings.Index(rest, `"type": "capture-cni"`)
			if at < 0 {
				break
			}
			count++
			var entry json.RawMessage
			if err := json.NewDecoder(strings.NewReader(rest[strings.LastIndexByte(rest[:at], '{'):])).Decode(&entry); err != nil {
				t.Errorf("%s: an entry is not JSON: %v", path, err)
			} else {
				expectRead(t, path, entry)
			}
			rest = rest[at+1:]
		}
	}
	expectSome(t, count)
}

var annotationKey = regexp.MustCompile(`[\w.-]*istio\.io/[A-Za-z][\w-]*`)

// TestGuidesKnowAnnotations looks up each key in the domains that the plugin
// reads, in its own list and in that of the admission policies.
func TestGuidesKnowAnnotations(t *testing.T) {
	values := read(t, chart+"/values.yaml")
	count := 0
	for path, guide := range guideTexts(t) {
		for _, key := range annotationKey.FindAllString(guide, -1) {
			domain, _, _ := strings.Cut(key, "/")
			if !slices.Contains([]string{"istio.io", "sidecar.istio.io", "traffic.sidecar.istio.io"}, domain) {
				continue
			}
			count++
			known := slices.ContainsFunc(capture.Annotations(config.Istio), func(a capture.Annotation) bool { return a.Key == key })
			if !known && !strings.Contains(values, key+":") {
				t.Errorf("%s: neither the plugin nor a policy reads %s", path, key)
			}
		}
	}
	expectSome(t, count)
}

var (
	testName       = regexp.MustCompile(`\bTest[A-Z]\w+`)
	testDefinition = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(`)
	metricName     = regexp.MustCompile(`\bcapture_cni_\w+`)
)

// TestDocumentsKnowTests looks for each test that a maintainers' document names. Operators'
// pages name none.
func TestDocumentsKnowTests(t *testing.T) {
	defined := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, entry os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") || entry.IsDir() {
			return err
		}
		for _, match := range testDefinition.FindAllStringSubmatch(read(t, path), -1) {
			defined[match[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, path := range []string{"../CONTRIBUTING.md", "../DECISIONS.md", "../ARCHITECTURE.md", "../e2e/README.md", "../e2e/PROOFS.md"} {
		for _, name := range testName.FindAllString(read(t, path), -1) {
			count++
			if !defined[name] {
				t.Errorf("%s: there is no %s", path, name)
			}
		}
	}
	expectSome(t, count)
	operators := guideTexts(t)
	for _, path := range []string{"README.md", "../README.md", "reference/agent.md", "reference/faults.md", "reference/guarantees.md", "reference/limits.md", "reference/windows.md"} {
		operators[path] = read(t, path)
	}
	for path, guide := range operators {
		if names := testName.FindAllString(guide, -1); names != nil {
			t.Errorf("%s names the tests %q: name them in e2e/PROOFS.md", path, names)
		}
	}
}

func TestGuidesKnowMetrics(t *testing.T) {
	count := 0
	for path, guide := range guideTexts(t) {
		for _, name := range metricName.FindAllString(guide, -1) {
			count++
			if !slices.ContainsFunc(allMetrics(), func(m metrics.Metric) bool { return m.Name == name }) {
				t.Errorf("%s: there is no metric %s", path, name)
			}
		}
	}
	expectSome(t, count)
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// TestLinks follows the links of all documents.
func TestLinks(t *testing.T) {
	documents := guideTexts(t)
	references, err := filepath.Glob("reference/*.md")
	if err != nil || len(references) == 0 {
		t.Fatalf("there is no reference (%v)", err)
	}
	for _, path := range append(references, "README.md", "../README.md", "../SECURITY.md", "../ARCHITECTURE.md", "../DECISIONS.md",
		"../CONTRIBUTING.md", "../e2e/README.md", "../e2e/PROOFS.md") {
		documents[path] = read(t, path)
	}
	count := 0
	for path, text := range documents {
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(match[1], "://") {
				continue
			}
			count++
			file, section, _ := strings.Cut(match[1], "#")
			target := filepath.Join(filepath.Dir(path), file)
			if file == "" {
				target = path
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: the link %s is broken: %v", path, match[1], err)
			} else if section != "" && !slices.Contains(sections(read(t, target)), section) {
				t.Errorf("%s: the link %s names no section of %s", path, match[1], target)
			}
		}
	}
	expectSome(t, count)
}

// sections returns the names by which links reach the sections of a document.
func sections(markdown string) (names []string) {
	for _, heading := range regexp.MustCompile("(?m)^#+ (.+)$").FindAllStringSubmatch(markdown, -1) {
		name := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}
