// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Labels of containers, as users reported them.
const (
	selinuxLabel  = "system_u:system_r:container_t:s0:c254,c465"
	apparmorLabel = "cri-containerd.apparmor.d (enforce)"
)

// TestDenial tells a denial by a security module from a mode that forbids the write.
func TestDenial(t *testing.T) {
	t.Parallel()
	directory := t.TempDir()
	secret := filepath.Join(directory, "secret")
	if err := os.WriteFile(secret, nil, 0o000); err != nil {
		t.Fatal(err)
	}
	closed := filepath.Join(directory, "closed")
	if err := os.Mkdir(closed, 0o555); err != nil {
		t.Fatal(err)
	}
	in := func(name string, reason error) error {
		return errors.Join(errors.New("writing"), &fs.PathError{Op: "openat", Path: name, Err: reason})
	}
	for name, test := range map[string]struct {
		label, directory string
		err              error
		want             []string // nothing is added without
	}{
		"SELinux":                  {selinuxLabel, directory, in("new", syscall.EACCES), []string{"SELinux gives the agent the label " + selinuxLabel, "ausearch -m AVC", "seLinuxOptions.type=spc_t"}},
		"AppArmor":                 {apparmorLabel, directory, in("new", syscall.EACCES), []string{"AppArmor confines the agent with the profile " + apparmorLabel, "journalctl --dmesg --grep=DENIED"}},
		"EPERM":                    {selinuxLabel, directory, in("new", syscall.EPERM), []string{"SELinux gives"}},
		"a rename":                 {selinuxLabel, directory, &os.LinkError{Op: "renameat", Old: "a", New: "b", Err: syscall.EACCES}, []string{"SELinux gives"}},
		"an absolute path":         {selinuxLabel, directory, in("/secret", syscall.EACCES), []string{"SELinux gives"}},
		"a label without levels":   {"user_u:role_r:type_t", directory, in("new", syscall.EACCES), []string{"SELinux gives the agent the label user_u:role_r:type_t"}},
		"the directory's mode":     {selinuxLabel, closed, in("new", syscall.EACCES), nil},
		"the file's mode":          {selinuxLabel, directory, in("secret", syscall.EACCES), nil},
		"a full disk":              {selinuxLabel, directory, in("new", syscall.ENOSPC), nil},
		"a read-only file system":  {selinuxLabel, directory, in("new", syscall.EROFS), nil},
		"an unconfined agent":      {"unconfined", directory, in("new", syscall.EACCES), nil},
		"a kernel without modules": {"", directory, in("new", syscall.EACCES), nil},
		"no error":                 {selinuxLabel, directory, nil, nil},
	} {
		got := ExplainDenial(test.label, test.directory, test.err)
		if len(test.want) == 0 && !errors.Is(got, test.err) || len(test.want) == 0 && got != nil && got.Error() != test.err.Error() {
			t.Errorf("%s: %v", name, got)
		}
		for _, want := range test.want {
			if got == nil || !strings.Contains(got.Error(), want) || !errors.Is(got, fs.ErrPermission) {
				t.Errorf("%s: it does not say %q: %v", name, want, got)
			}
		}
	}
}
