// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
)

// tokenUntil is a token that expires at a time.
func tokenUntil(expires time.Time) string {
	return jwt(fmt.Sprintf(`{"iat":%d,"exp":%d}`, expires.Add(-time.Hour).Unix(), expires.Unix()))
}

// directories are where an agent writes credentials unless its flags say otherwise.
var directories = []string{"/var/lib/capture-cni", "/run/capture-cni"}

// TestYoungerToken goes where the younger token is: the agent renews it in the
// run directory while the disk of the state directory is full.
func TestYoungerToken(t *testing.T) {
	t.Parallel()
	const state, run = "/var/lib/capture-cni", "/run/capture-cni"
	old, young := tokenUntil(time.Now().Add(time.Hour)), tokenUntil(time.Now().Add(2*time.Hour))
	for name, tt := range map[string]struct {
		files map[string]string
		want  string
	}{
		"none yet":        {nil, state},
		"disk not full":   {map[string]string{state + "/token": young}, state},
		"disk full":       {map[string]string{run + "/token": young}, run},
		"disk full later": {map[string]string{state + "/token": old, run + "/token": young}, run},
		"no longer full":  {map[string]string{state + "/token": young, run + "/token": old}, state},
		"expired":         {map[string]string{run + "/token": tokenUntil(time.Now().Add(-time.Hour))}, state},
	} {
		kubeconfig, fault := New(machine.New(t, tt.files), directories, Settings{}, nil).Fault()
		if want := tt.want + "/kubeconfig"; kubeconfig != want || tt.files == nil && fault.Error() != state+" contains no token" {
			t.Errorf("%s: %s, want %s; %v", name, kubeconfig, want, fault)
		}
	}
}

// TestCredentialsArePrivate lets no other user read the token or list its directory.
func TestCredentialsArePrivate(t *testing.T) {
	t.Parallel()
	root := machine.New(t, nil)
	var wanted Settings
	wanted.Server = "https://api.test"
	c := New(root, directories, wanted, nil)
	if err := c.write("/var/lib/capture-cni", []byte("CA"), "token"); err != nil {
		t.Fatal(err)
	}
	directory := c.at("/var/lib/capture-cni")
	access, err := clientcmd.LoadFromFile(directory + "/" + config.KubeconfigName)
	if err != nil {
		t.Fatal(err)
	}
	current := access.Contexts[access.CurrentContext]
	got := []string{access.Clusters[current.Cluster].Server, access.Clusters[current.Cluster].CertificateAuthority, access.AuthInfos[current.AuthInfo].TokenFile}
	if want := []string{"https://api.test", "/var/lib/capture-cni/ca.crt", "/var/lib/capture-cni/token"}; !slices.Equal(got, want) {
		t.Errorf("the kubeconfig has %q, want %q", got, want)
	}
	for name, want := range map[string]os.FileMode{"": 0o700, TokenName: 0o600, config.KubeconfigName: 0o600, CAName: 0o600} {
		info, err := os.Stat(filepath.Join(directory, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%q has mode %v, %v: want %o", name, info.Mode(), err, want)
		}
	}
}

// TestHalfOfTheCredentials lacks each of the files, as an agent leaves them that is killed, or
// an operator that deletes one: that is a fault, and none once all are there again.
func TestHalfOfTheCredentials(t *testing.T) {
	t.Parallel()
	for _, directory := range []string{"/var/lib/capture-cni", "/run/capture-cni"} {
		if got := strings.Join(Names(), " "); got != "kubeconfig token ca.crt" {
			t.Fatalf("the files are %s", got)
		}
		for _, lost := range Names() {
			c := New(machine.New(t, nil), directories, Settings{}, nil)
			token := tokenUntil(time.Now().Add(time.Hour))
			if err := c.write(directory, []byte("CA"), token); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Fault(); err != nil {
				t.Errorf("all are in %s: %v", directory, err)
			}
			if err := os.Remove(c.at(directory) + "/" + lost); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Fault(); err == nil {
				t.Errorf("%s has no %s, and that is no fault", directory, lost)
			}
			if err := c.write(directory, []byte("CA"), token); err != nil {
				t.Fatal(err)
			}
			if kubeconfig, err := c.Fault(); err != nil || kubeconfig != directory+"/"+config.KubeconfigName {
				t.Errorf("%s is in %s again: %s, %v", lost, directory, kubeconfig, err)
			}
		}
	}
}

// TestFallback can't write to the state directory: to one that has no space, or is read-only,
// the run directory is the alternative; any other fault is one for the operator.
func TestFallback(t *testing.T) {
	lab.RequireRoot(t)
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(state string) error
		want    string // the directory; empty for an error
	}{
		"writable": {func(string) error { return nil }, "/var/lib/capture-cni"},
		"read-only": {func(state string) error {
			return unix.Mount("none", state, "tmpfs", unix.MS_RDONLY, "size=64k")
		}, "/run/capture-cni"},
		"full": {func(state string) error {
			err := unix.Mount("none", state, "tmpfs", 0, "size=4k")
			return errors.Join(err, os.WriteFile(state+"/filler", make([]byte, 4<<10), 0o600))
		}, "/run/capture-cni"},
		"no directory": {func(state string) error {
			return errors.Join(os.Remove(state), os.WriteFile(state, nil, 0o600))
		}, ""},
	} {
		root := machine.New(t, map[string]string{
			"/run/capture-cni/token": tokenUntil(time.Now().Add(time.Hour)), "/ca.crt": "CA", "/var/lib/other": "",
		})
		var wanted Settings
		wanted.CAFile = filepath.Join(root, "/ca.crt")
		state := filepath.Join(root, directories[0])
		if err := errors.Join(os.Mkdir(state, 0o700), test.prepare(state)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(state, unix.MNT_DETACH) })
		for range 2 {
			got, err := New(root, directories, wanted, nil).Ensure(t.Context(), false)
			if (err != nil) != (test.want == "") {
				t.Errorf("%s: %v", name, err)
			}
			if err == nil && (got.Kubeconfig != test.want+"/kubeconfig" || got.Fallback != (test.want == directories[1])) {
				t.Errorf("%s: %+v", name, got)
			}
		}
	}
}

// TestNoAccess has an agent that can't reach an API server keep the token that is valid, and say so
// if none is.
func TestNoAccess(t *testing.T) {
	t.Parallel()
	valid := tokenUntil(time.Now().Add(time.Minute)) // the time to renew it has come
	for name, tt := range map[string]struct {
		files map[string]string
		want  string
	}{
		"a valid token": {map[string]string{"/var/lib/capture-cni/token": valid}, valid},
		"none":          {nil, ""},
	} {
		token, _, err := New(machine.New(t, tt.files), directories, Settings{}, nil).freshToken(t.Context(), false)
		if token != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s: %q, %v", name, token, err)
		}
	}
}
