// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/install/report"
)

// TestTrace expects trace to require a destination, and to name the command that it executes. The flag
// --as is kubectl's.
func TestTrace(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.addNode("node-1", time.Minute, state(&report.Pods{}))
	c.addPod("node-1", "web", nil)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"shop/web"}, `required flag(s) "to" not set`},
		{[]string{"shop/web/x", "--to", "10.0.0.1:80"}, "expected POD, NAMESPACE/POD"},
		{[]string{"-n", "shop", "web", "--to", "svc/headless:80"}, "there is no address of Service shop/headless"},
		{[]string{"-n", "shop", "web", "--to", "svc/cart:http"}, "shop/web --to=10.96.0.7:80 in pod"},
		{[]string{"shop/none", "--to", "10.0.0.1:80"}, "reading pod shop/none"},
		{[]string{"shop/web", "--to", "10.0.0.1:80", "--in"}, "executing /capture-cni-node explain --output=json shop/web --in=true --to=10.0.0.1:80 in pod"}, // this API server executes no commands
	} {
		_, errors, status := c.run(t, append([]string{"trace"}, tt.args...)...)
		if status != 2 {
			t.Errorf("%q: status %d", tt.args, status)
		}
		expect(t, errors, tt.want)
	}
	if c.run(t, "trace", "shop/web", "--to", "10.0.0.1:80", "--as", "operator"); c.user != "operator" {
		t.Errorf("trace --as operator impersonates %q", c.user)
	}
}

// TestTraceStatus expects the status 2 of a trace that can't tell.
func TestTraceStatus(t *testing.T) {
	t.Parallel()
	for doubt, want := range map[string]error{"": nil, "the pod is drifted": notKnown} {
		var traced report.Trace
		if doubt != "" {
			traced.Doubts = []string{doubt}
		}
		for _, form := range []string{"", "json"} {
			var out strings.Builder
			if got := writeTrace(&options{output: form}, newScreen(&out), traced); got != want || !strings.Contains(out.String(), doubt) {
				t.Errorf("%q: %v, want %v\n%s", doubt, got, want, out.String())
			}
		}
	}
}

// TestPacketFlags expects only the flags that the user set.
func TestPacketFlags(t *testing.T) {
	t.Parallel()
	command := &cobra.Command{}
	flags := packetFlags(command)
	if err := command.ParseFlags([]string{"--to", "[2001:db8::1]:53", "--udp", "--sender", "1000:1000", "--mark", "0"}); err != nil {
		t.Fatal(err)
	}
	if got, want := given(flags), []string{"--mark=0", "--as=1000:1000", "--to=[2001:db8::1]:53", "--udp=true"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
