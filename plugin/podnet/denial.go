// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Explained adds to an error that can be a denial of AppArmor which profile confines this
// process, if one does. The error's text decides: some packages do not wrap the kernel's.
func Explained(err error) error {
	label, _ := os.ReadFile("/proc/self/attr/current") // there is none without a security module
	profile := strings.TrimSpace(string(label))
	if !strings.HasSuffix(profile, " (enforce)") || !regexp.MustCompile("[Pp]ermission denied|not permitted").MatchString(err.Error()) {
		return err
	}
	return fmt.Errorf("%w: AppArmor confines this process with the profile %s: look for a denial with `journalctl --dmesg --grep=DENIED` on the node (a `deny` rule is logged only with `audit`), and allow it in that profile", err, profile)
}
