// SPDX-License-Identifier: Apache-2.0

package lookup

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/trust"
)

// withProgram returns a lookup by a script in the place of capture-cni-lookup, and its log.
func withProgram(t *testing.T, script string) (Lookup, *lab.Log) {
	t.Helper()
	dir, log := t.TempDir(), &lab.Log{}
	lab.Check(t, os.WriteFile(filepath.Join(dir, config.KubeconfigName), nil, 0o600))
	lab.Check(t, lab.WriteProgram(dir+"/program", []byte("#!/bin/sh\n"+script+"\n")))
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return Lookup{Program: dir + "/program", Directory: dir, Timeout: 30 * time.Second, SingleAttempt: true, Log: logger}, log
}

// TestProgramErrors tells untrusted credentials and none from a program that fails, whose environment has only the
// directory that the operator allows.
func TestProgramErrors(t *testing.T) {
	t.Setenv(config.DirectoryVariable, "/allowed")
	pod := capture.PodRef{Namespace: "shop", Name: "web"}
	l, _ := withProgram(t, fmt.Sprintf(`echo '{"version": %d, "fault": {"kind": "untrusted", "message": "open to others"}}'`, capture.PodVersion))
	if _, err := l.Pod(t.Context(), pod); !isA[trust.Untrusted](err) || err.Error() != "asking the API server: open to others" {
		t.Errorf("untrusted: %v", err)
	}
	l, log := withProgram(t, `/usr/bin/env >&2; exit 3`)
	_, err := l.Pod(t.Context(), pod)
	if err == nil || !strings.Contains(err.Error(), "exit status 3\n") || !strings.Contains(err.Error(), config.DirectoryVariable+"=/allowed") || strings.Contains(err.Error(), "HOME=") {
		t.Errorf("the environment: %v", err)
	}
	if !strings.Contains(log.String(), `level=DEBUG msg="an attempt of a pod lookup failed" attempt=1 error="asking the API server: executing `) {
		t.Errorf("logged %s", log)
	}
	l, _ = withProgram(t, `exit 3`)
	if _, err := l.Pod(t.Context(), pod); err == nil || !strings.HasSuffix(err.Error(), "exit status 3") {
		t.Errorf("without output: %v", err)
	}
	program := l.Program
	l.Directory = program
	if err := l.checkProgram(); err == nil || isFault(err, NoCredentials) {
		t.Errorf("a directory that is a file: %v", err)
	}
	l.Directory, l.Program = filepath.Dir(program), "/missing"
	if err := l.checkProgram(); !isFault(err, NoCredentials) || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no program: %v", err)
	}
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// TestParseAnswer reads what answers a request for a pod, and refuses what does not.
func TestParseAnswer(t *testing.T) {
	t.Parallel()
	const pod = `"pod": {"annotations": {}}`
	for name, tt := range map[string]struct{ uid, digest, answer, err string }{
		"a pod":                {"u", "", `"uid": "u", ` + pod, ""},
		"by its name":          {"", "", `"uid": "u", ` + pod, ""},
		"another pod":          {"u", "", `"uid": "v", ` + pod, "it has the pod with UID v, expected u"},
		"no UID":               {"u", "", pod, "it has no pod"},
		"no pod":               {"u", "", `"uid": "u"`, "it has no pod"},
		"unchanged":            {"u", "d", `"unchanged": true`, ""},
		"unchanged of nothing": {"u", "", `"unchanged": true`, "it has no pod"},
		"changed to nothing":   {"u", "d", `"uid": ""`, "it has no pod"},
		"a fault":              {"u", "d", `"unchanged": true, "fault": {"kind": "gone", "message": "gone"}`, "gone"},
	} {
		request := Request{Version: capture.PodVersion, Digest: tt.digest, Pod: capture.PodRef{Namespace: "shop", Name: "web", UID: tt.uid}}
		answer, err := ParseAnswer(fmt.Appendf(nil, `{"version": %d, %s}`, capture.PodVersion, tt.answer), request)
		if (err == nil) != (tt.err == "") || err != nil && !strings.HasSuffix(err.Error(), tt.err) || err == nil && (answer.Pod == nil) != answer.Unchanged {
			t.Errorf("%s: %+v, %v", name, answer, err)
		}
	}
}

// TestFinal retries unless only an operator can help. An agent that does not serve may be starting.
func TestFinal(t *testing.T) {
	t.Parallel()
	down, stuck := notServing{errors.New("connection refused")}, errors.New("no answer")
	refused, none, failed := &Fault{Kind: Refused}, &Fault{Kind: NoCredentials}, &Fault{Kind: Failed}
	for _, tt := range []struct {
		agent, api error
		want       bool
	}{
		{nil, refused, true},
		{nil, none, true},
		{nil, failed, false},
		{refused, refused, true},
		{refused, none, true},
		{refused, failed, false},
		{down, refused, true},
		{down, none, false},
		{down, failed, false},
		{stuck, refused, false},
		{stuck, none, false},
		{failed, refused, false},
	} {
		if got := (failedAttempt{tt.agent, tt.api}).isFinal(); got != tt.want {
			t.Errorf("agent %v, API server %v: final is %v", tt.agent, tt.api, got)
		}
	}
}
