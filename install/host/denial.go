// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// OwnLabel returns the label that the node's security module gives this process, or "" if the node has
// no security module.
func OwnLabel() string {
	label, _ := os.ReadFile("/proc/self/attr/current")
	return strings.TrimRight(string(label), "\x00\n")
}

// ExplainDenial adds, to the error of a write in a directory, the security module that denied the
// write, and the next step. It returns any other error unchanged.
func ExplainDenial(label, directory string, err error) error {
	if !IsDenial(label, directory, err) {
		return err
	}
	what, do := DescribeDenial(label, directory)
	return fmt.Errorf("%w: %s: %s", err, what, do)
}

// IsDenial reports whether the node's security module probably caused a write's error. IsDenial assumes
// this if the process is confined, and the error is a denied permission, although the directory's mode
// permits writing and the file's mode permits reading.
func IsDenial(label, directory string, err error) bool {
	failed, names := errors.AsType[*fs.PathError](err)
	return label != "" && label != "unconfined" && errors.Is(err, fs.ErrPermission) && modeAllows(directory, 3) &&
		(!names || filepath.IsAbs(failed.Path) || modeAllows(directory+"/"+failed.Path, 4))
}

// modeAllows reports whether a file's owner and mode give this process these permissions (4 read, 2
// write, 1 execute). It returns true for a missing file.
func modeAllows(path string, permissions uint32) bool {
	var file unix.Stat_t
	if err := unix.Stat(path, &file); err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	shift := 0
	switch {
	case int(file.Uid) == os.Geteuid():
		shift = 6
	case int(file.Gid) == os.Getegid():
		shift = 3
	}
	return file.Mode>>shift&permissions == permissions
}

// DescribeDenial describes a denied write by AppArmor's profile or SELinux's labels. do says how to find
// the denial in the node's log, and how to permit the write.
func DescribeDenial(label, directory string) (what, do string) {
	if strings.Count(label, ":") < 2 { // a profile and its mode, such as "cri-containerd.apparmor.d (enforce)"
		return fmt.Sprintf("the mode of %s allows it, and AppArmor confines the agent with the profile %s", directory, label),
			"look for the denial with `journalctl --dmesg --grep=DENIED` on the node (a `deny` rule is logged only with `audit`); " +
				"allow it in that profile, or run the agents unconfined " +
				"(chart: appArmorProfile.type=Unconfined; before Kubernetes 1.30, by podAnnotations)"
	}
	return fmt.Sprintf("the mode of %s allows it, and SELinux gives the agent the label %s, and the directory %s",
			directory, label, fileLabel(directory)),
		"look for the denial with `ausearch -m AVC -ts recent` on the node; " +
			"run the agents with a type that may write there (chart: seLinuxOptions.type=spc_t)"
}

// fileLabel returns the SELinux label of a file, or a text that says why it can't be read.
func fileLabel(path string) string {
	value := make([]byte, 256)
	n, err := unix.Lgetxattr(path, "security.selinux", value)
	if err != nil {
		return "(not readable: " + err.Error() + ")"
	}
	return strings.TrimRight(string(value[:n]), "\x00")
}
