// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/settings"
)

// tokenUntil is a token that expires at a time.
func tokenUntil(expires time.Time) string {
	return jwt(fmt.Sprintf(`{"iat":%d,"exp":%d}`, expires.Add(-time.Hour).Unix(), expires.Unix()))
}

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
		kubeconfig, _ := New(settings.Default(machine.New(t, tt.files)), nil).Fault()
		if want := tt.want + "/kubeconfig"; kubeconfig != want {
			t.Errorf("%s: %s, want %s", name, kubeconfig, want)
		}
	}
}

// TestCredentialsArePrivate lets no other user read the token or list its directory.
func TestCredentialsArePrivate(t *testing.T) {
	t.Parallel()
	c := New(settings.Default(machine.New(t, nil)), nil)
	if err := c.write("/var/lib/capture-cni", []byte("CA"), "token"); err != nil {
		t.Fatal(err)
	}
	directory := c.settings.At("/var/lib/capture-cni")
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
		for _, lost := range Names() {
			c := New(settings.Default(machine.New(t, nil)), nil)
			token := tokenUntil(time.Now().Add(time.Hour))
			if err := c.write(directory, []byte("CA"), token); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Fault(); err != nil {
				t.Errorf("all are in %s: %v", directory, err)
			}
			if err := os.Remove(c.settings.At(directory) + "/" + lost); err != nil {
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
