// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// admissionCase is one file of testdata: comments with the expected verdicts, a
// pod, and for a second step the change.
//
//	# create: allowed
//	# update: refused by <policy>: <part of the message>
//
// The second step is one of update, status, ephemeral and binding.
type admissionCase struct {
	name, file string
	pod        string
	create     verdict
	second     string
	then       verdict
	change     string
	istioInit  string // removed or kept
}

// verdict is the API server's expected answer; without a policy it allows.
type verdict struct{ policy, text string }

func admissionCases(t *testing.T, directory string) []admissionCase {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", directory, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases in testdata/%s: %v", directory, err)
	}
	var cases []admissionCase
	for _, file := range files {
		ac, err := readAdmissionCase(file)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		cases = append(cases, ac)
	}
	return cases
}

func readAdmissionCase(file string) (admissionCase, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return admissionCase{}, err
	}
	ac := admissionCase{name: strings.TrimSuffix(filepath.Base(file), ".yaml"), file: file}
	ac.pod, ac.change, _ = strings.Cut(string(content), "\n---\n")
	expects := false
	for line := range strings.Lines(ac.pod) {
		comment, ok := strings.CutPrefix(line, "# ")
		if !ok {
			break
		}
		step, text, _ := strings.Cut(strings.TrimSpace(comment), ": ")
		switch step {
		case "create":
			ac.create, err = parseVerdict(text)
		case "update", "status", "ephemeral", "binding":
			ac.second = step
			ac.then, err = parseVerdict(text)
		case "istio-init":
			ac.istioInit = text
		default:
			continue
		}
		if err != nil {
			return ac, err
		}
		expects = true
	}
	if !expects || (ac.second == "") != (ac.change == "") {
		return ac, fmt.Errorf("no expectation, or a second step without a second document")
	}
	return ac, nil
}

func parseVerdict(text string) (verdict, error) {
	if text == "allowed" {
		return verdict{}, nil
	}
	rest, refused := strings.CutPrefix(text, "refused by ")
	policy, message, complete := strings.Cut(rest, ": ")
	if !refused || !complete {
		return verdict{}, fmt.Errorf("%q: expected \"allowed\" or \"refused by <policy>: <text>\"", text)
	}
	return verdict{policy, message}, nil
}

// check compares the API server's error with the verdict.
func (v verdict) check(err error) error {
	switch {
	case v.policy == "" && err != nil:
		return fmt.Errorf("refused, want it allowed: %w", err)
	case v.policy != "" && err == nil:
		return fmt.Errorf("allowed, want it refused by %s", v.policy)
	case v.policy == "":
		return nil
	}
	for _, part := range []string{"ValidatingAdmissionPolicy 'capture-cni-" + v.policy + "'", v.text} {
		if !strings.Contains(err.Error(), part) {
			return fmt.Errorf("got %w\nwant %q in it", err, part)
		}
	}
	return nil
}
