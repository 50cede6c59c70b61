// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"

	"github.com/capture-cni/capture-cni/install/cri"
)

func TestSockets(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		given string
		want  []string
		fails bool
	}{
		{"--cri-socket=none", nil, false},
		{"--cri-socket=/run/a.sock", []string{"/run/a.sock"}, false},
		{"--cri-socket=/run/a.sock,/run/b.sock", []string{"/run/a.sock", "/run/b.sock"}, false},
		{"--cri-socket=run/a.sock", nil, true},
		{"--cri-socket=none,/run/a.sock", nil, true},
		{"--cri-socket=auto,/run/a.sock", nil, true},
	} {
		o, err := parsed(t, nil, tt.given)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := o.findSockets(); !slices.Equal(got, tt.want) || (err != nil) != tt.fails {
			t.Errorf("%s: %q (%v), want %q", tt.given, got, err, tt.want)
		}
	}
	o, err := parsed(t, nil, "--root=/host")
	if err != nil {
		t.Fatal(err)
	}
	found, err := o.findSockets()
	if err != nil || len(found) != len(cri.KnownSockets()) || found[1] != "/host/run/crio/crio.sock" {
		t.Errorf("without the flag: %q (%v)", found, err)
	}
}
