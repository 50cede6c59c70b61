// SPDX-License-Identifier: Apache-2.0

package entry

import "errors"

// Waiting is a reason why the agent must wait. It resolves without the operator.
type Waiting string

func (w Waiting) Error() string { return string(w) }

func IsWaiting(err error) bool {
	_, ok := errors.AsType[Waiting](err)
	return ok
}
