// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"errors"
	"fmt"

	"github.com/capture-cni/capture-cni/install/terms"
	"github.com/capture-cni/capture-cni/plugin/nfnetlink"
)

// Finding is the result of an examination.
type Finding struct {
	State    terms.State
	Reason   string
	Repaired terms.State // the state before this examination repaired the pod; empty where it did not
}

// isMissing reports whether the pod lacks the desired rules.
func (f Finding) isMissing() bool { return f.State == terms.Uncaptured || f.State == terms.Drifted }

func unknown(err error) Finding { return Finding{State: terms.Unknown, Reason: err.Error()} }

func drifted(format string, args ...any) Finding {
	return Finding{State: terms.Drifted, Reason: fmt.Sprintf(format, args...)}
}

// unreadable returns the finding for rules that could not be read: drifted where
// they exceed a limit or keep changing, which ADD's rules never do, else unknown.
func unreadable(err error) Finding {
	_, tooLarge := errors.AsType[nfnetlink.TooLarge](err)
	if tooLarge || errors.Is(err, nfnetlink.ErrChanging) {
		return drifted("%s", err)
	}
	return unknown(err)
}
