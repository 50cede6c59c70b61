// SPDX-License-Identifier: Apache-2.0

package main

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/capture-cni/capture-cni/install/report"
)

// parsed returns the options that a command line and the environment set.
func parsed(t *testing.T, environment map[string]string, given ...string) (*options, error) {
	t.Helper()
	for name, value := range environment {
		t.Setenv(name, value)
	}
	o := &options{}
	flags := pflag.NewFlagSet("verify", pflag.ContinueOnError)
	o.declare(flags)
	flags.BoolP("help", "h", false, "")
	if err := flags.Parse(given); err != nil {
		t.Fatal(err)
	}
	return o, readEnvironment(flags)
}

// TestEnvironment sets flags in the environment. The command line takes precedence.
func TestEnvironment(t *testing.T) {
	for _, test := range []struct {
		name        string
		environment map[string]string
		given       []string
		change      func(o *options)
	}{
		{"nothing", nil, nil, func(*options) {}},
		{
			"strings and durations",
			map[string]string{"CAPTURE_CNI_MODE": "insert", "CAPTURE_CNI_STATE_DIR": "/state", "CAPTURE_CNI_TOKEN_TTL": "1h"},
			nil,
			func(o *options) { o.Mode, o.StateDir, o.Credentials.TTL = report.Insert, "/state", time.Hour },
		},
		{"the command line takes precedence", map[string]string{"CAPTURE_CNI_MODE": "insert"}, []string{"--mode=auto"}, func(o *options) { o.Mode = report.Auto }},
		{
			"a list replaces the default",
			map[string]string{"CAPTURE_CNI_BIN_DIR": "/a,/b"},
			nil,
			func(o *options) { o.BinDirs = []string{"/a", "/b"} },
		},
		{"empty", map[string]string{"CAPTURE_CNI_ROOT": ""}, nil, func(o *options) { o.Root = "" }},
		{"unknown flag, and help", map[string]string{"CAPTURE_CNI_DIR": "/d", "CAPTURE_CNI_HELP": "true"}, nil, func(*options) {}},
	} {
		t.Run(test.name, func(t *testing.T) {
			want, err := parsed(t, nil, test.given...)
			if err != nil {
				t.Fatal(err)
			}
			test.change(want)
			got, err := parsed(t, test.environment, test.given...)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(want, got) {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// TestBadEnvironment wants an error that names variable and value.
func TestBadEnvironment(t *testing.T) {
	_, err := parsed(t, map[string]string{"CAPTURE_CNI_TOKEN_TTL": "soon"})
	if err == nil || !strings.Contains(err.Error(), `environment variable CAPTURE_CNI_TOKEN_TTL is "soon"`) {
		t.Errorf("got %v", err)
	}
}

// TestSkewIsExplained names chart and image where a chart of another release passes what the
// agent does not know, as cobra says it.
func TestSkewIsExplained(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]bool{"backends": true, "run --later": true, "guard --policy=none": false, "run --state=x --mode=y": false} {
		command := root()
		command.SetArgs(strings.Fields(args))
		err := command.ExecuteContext(t.Context())
		if err == nil || strings.Contains(report.SkewAdvice(err.Error()), "--set image.tag=") != want {
			t.Errorf("%s: %v", args, err)
		}
	}
}
