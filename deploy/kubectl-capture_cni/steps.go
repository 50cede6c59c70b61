// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
)

// nextSteps are the next steps of findings, in their order.
type nextSteps struct{ steps []nextStep }

type nextStep struct{ subject, step string }

// maxSteps is how many steps are printed: -o json has those of all findings.
const maxSteps = 5

func (n *nextSteps) add(subject, step string) {
	if step != "" {
		n.steps = append(n.steps, nextStep{subject, step})
	}
}

func (n *nextSteps) write(out io.Writer) {
	for _, s := range n.steps[:min(len(n.steps), maxSteps)] {
		fmt.Fprintf(out, "  next for %s: %s\n", printable(s.subject), printable(s.step))
	}
	if more := len(n.steps) - maxSteps; more > 0 {
		fmt.Fprintf(out, "  and %d more next steps: -o json has them all\n", more)
	}
}
