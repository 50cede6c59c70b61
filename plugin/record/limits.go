// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Limits keep a record well below what a datagram may hold, and its names fit
// for labels, files and URLs. Names of Kubernetes are as long as these.
const (
	MaxSize      = 64 << 10
	maxMessage   = 2 << 10
	maxWarning   = 512
	maxWarnings  = 8
	maxNamespace = 63
	maxName      = 253
	maxUID       = 128
	maxSandbox   = 128
	maxBackend   = 32
	maxStamp     = 128 // a comment of a rule in the kernel has 127 bytes at most
	maxStage     = time.Hour
	maxFault     = 256 // of a text that an error quotes
)

const ellipsis = "…"

func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + ellipsis
}

// fit cuts texts and leaves out names that are none, so that the record is read.
func (r Record) fit() Record {
	r.Message = cut(r.Message, maxMessage)
	r.Warnings = slices.Clone(r.Warnings[:min(len(r.Warnings), maxWarnings)])
	for i, warning := range r.Warnings {
		r.Warnings[i] = cut(warning, maxWarning)
	}
	if r.Pod.fault() != nil {
		r.Pod = PodRef{}
	}
	if !isName(r.Sandbox, maxSandbox) {
		r.Sandbox = ""
	}
	if !isName(r.Backend, maxBackend) {
		r.Backend = ""
	}
	return r
}

// fault says which limit a record exceeds.
func (r Record) fault() error {
	if err := r.Pod.fault(); err != nil {
		return err
	}
	switch {
	case !isName(r.Sandbox, maxSandbox):
		return notName("sandbox", r.Sandbox, maxSandbox)
	case !isName(r.Backend, maxBackend):
		return notName("backend", r.Backend, maxBackend)
	case len(r.Stamp) > maxStamp:
		return fmt.Errorf("a stamp of %d bytes: expected at most %d", len(r.Stamp), maxStamp)
	case len(r.Message) > maxMessage+len(ellipsis):
		return fmt.Errorf("a message of %d bytes: expected at most %d", len(r.Message), maxMessage)
	case len(r.Warnings) > maxWarnings:
		return fmt.Errorf("%d warnings: expected at most %d", len(r.Warnings), maxWarnings)
	case !r.Time.IsZero() && (r.Time.Year() < 1970 || r.Time.Year() >= 2262): // beyond, time.UnixNano is not defined
		return fmt.Errorf("time %s: expected a year from 1970 to 2261", r.Time.Format(time.DateOnly))
	}
	for _, warning := range r.Warnings {
		if len(warning) > maxWarning+len(ellipsis) {
			return fmt.Errorf("a warning of %d bytes: expected at most %d", len(warning), maxWarning)
		}
	}
	for stage, seconds := range r.Stages {
		if !slices.Contains(Stages(), stage) {
			return fmt.Errorf("stage %q: expected one of %q", cut(string(stage), maxFault), Stages())
		}
		if seconds < 0 || seconds > maxStage.Seconds() {
			return fmt.Errorf("stage %s took %g seconds: expected 0 to %g", stage, seconds, maxStage.Seconds())
		}
	}
	return nil
}

func (p PodRef) fault() error {
	switch {
	case !isName(p.Namespace, maxNamespace):
		return notName("pod.namespace", p.Namespace, maxNamespace)
	case !isName(p.Name, maxName):
		return notName("pod.name", p.Name, maxName)
	case !isName(p.UID, maxUID):
		return notName("pod.uid", p.UID, maxUID)
	}
	return nil
}

func notName(field, value string, most int) error {
	return fmt.Errorf("%s is %q: expected at most %d of letters, digits, dots, dashes, underscores", field, cut(value, maxFault/4), most)
}

// isName reports whether a text is empty or consists of what names and ids of
// Kubernetes and of runtimes consist of.
func isName(text string, most int) bool {
	return len(text) <= most && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == ""
}
