// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Indent precedes each line of a fact except the first line.
const Indent = "             "

// facts writes each fact on a new line, and indents the fact's other lines, so that a text from a pod
// can't look like a fact.
type facts struct{ strings.Builder }

func (f *facts) add(name, format string, args ...any) {
	fmt.Fprintf(f, "%-12s %s\n", name, strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "\n"+Indent))
}

// Text returns the explanation, with a line for each fact.
func (p Explanation) Text() string {
	var f facts
	f.add("pod", "%s/%s, UID %s", p.Namespace, p.Name, p.UID)
	if p.Examined {
		p.writeState(&f)
	} else {
		f.add("sandbox", "not examined: the last one known is %s", p.Sandbox)
	}
	if p.Add != nil {
		p.writeAdd(&f)
	}
	if p.AddUnknown != "" {
		f.add("last ADD", "not known: %s", p.AddUnknown)
	}
	return f.String()
}

func (p Explanation) writeState(f *facts) {
	f.add("sandbox", "%s", p.Sandbox)
	f.add("namespace", "%s", cmp.Or(p.NetNS, "that of the node or of the pod's runtime, or unknown"))
	if p.NotMeshed != "" {
		f.add("in the mesh", "no: %s", p.NotMeshed)
		return
	}
	if p.NowUnknown != "" {
		f.add("asks now", "unknown: %s", p.NowUnknown)
	}
	for _, a := range p.Annotations {
		line := a.Created.String()
		if now := a.Now.String(); now != line {
			line += "; now " + now
		}
		f.add("asked for", "%s: %s", a.Key, line)
	}
	f.add("state", "%s", p.State)
	if p.Because != "" {
		f.add("because", "%s", p.Because)
	}
	if p.Kernel != nil {
		p.Kernel.write(f)
	}
	if p.KernelUnknown != "" {
		f.add("kernel", "not known: %s", p.KernelUnknown)
	}
}

// String returns the value as text for people: "nothing" for nil, and "present" for a hidden value.
func (v *Value) String() string {
	switch {
	case v == nil:
		return "nothing"
	case v.Hidden:
		return "present"
	case v.Bytes > 0:
		return fmt.Sprintf("%q… (%d bytes, cut after %d)", v.Text, v.Bytes, len(v.Text))
	}
	return fmt.Sprintf("%q", v.Text)
}

func (k Kernel) write(f *facts) {
	f.add("kernel", "backend %s, %s", cmp.Or(k.Backend, "none"), cmp.Or(k.Stamp, "no stamp"))
	if k.Refused > 0 {
		f.add("kernel", "refused packets: %d", k.Refused)
	}
	if k.Foreign != "" {
		f.add("kernel", "another plugin's rules: %s", k.Foreign)
	}
	if k.Expected != "" {
		f.add("expected", "%s", k.Expected)
	}
}

func (p Explanation) writeAdd(f *facts) {
	line := fmt.Sprintf("%s: %s", p.Add.Time.UTC().Format(time.RFC3339), p.Add.Verdict)
	for _, part := range []struct{ format, value string }{
		{" (%s)", string(p.Add.Reason)}, {" by %s", p.Add.Backend}, {": %s", p.Add.Message},
	} {
		if part.value != "" {
			line += fmt.Sprintf(part.format, part.value)
		}
	}
	if p.AddOfEarlier {
		line += "; for an earlier sandbox of the pod, " + p.Add.Sandbox
	}
	f.add("last ADD", "%s", line)
	if p.Add.Trace != "" {
		f.add("last ADD", "trace %s", p.Add.Trace)
	}
	for _, stage := range Stages() {
		if seconds, ok := p.Add.Stages[stage]; ok {
			f.add("last ADD", "%s took %.1f ms", stage, 1000*seconds)
		}
	}
	for _, warning := range p.Add.Warnings {
		f.add("last ADD", "warned: %s", warning)
	}
	for _, note := range p.Add.Notes {
		f.add("last ADD", "noted: %s", note)
	}
}
