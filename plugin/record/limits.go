// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"strings"
)

// Limits keep a record well below what a datagram may hold, and its names fit
// for labels, files and URLs. Names of Kubernetes are as long as these.
const (
	MaxSize      = 64 << 10
	MaxMessage   = 2 << 10
	MaxWarning   = 512
	MaxWarnings  = 8
	MaxNamespace = 63
	MaxName      = 253
	MaxUID       = 128
	MaxSandbox   = 128
	MaxBackend   = 32
	MaxFault     = 256 // of a text that an error quotes
)

const Ellipsis = "…"

func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + Ellipsis
}

// fit cuts texts and leaves out names that are none, so that the record is read.
func (r Record) fit() Record {
	r.Message = Cut(r.Message, MaxMessage)
	r.Warnings, r.Notes = fitAll(r.Warnings), fitAll(r.Notes)
	if r.Pod.Fault() != nil {
		r.Pod = PodRef{}
	}
	if !IsName(r.Sandbox, MaxSandbox) {
		r.Sandbox = ""
	}
	if !IsName(r.Backend, MaxBackend) {
		r.Backend = ""
	}
	return r
}

// fitAll returns the first texts, and each as long as it may be.
func fitAll(texts []string) (fitting []string) {
	for _, text := range texts[:min(len(texts), MaxWarnings)] {
		fitting = append(fitting, Cut(text, MaxWarning))
	}
	return fitting
}

func (p PodRef) Fault() error {
	switch {
	case !IsName(p.Namespace, MaxNamespace):
		return NotName("pod.namespace", p.Namespace, MaxNamespace)
	case !IsName(p.Name, MaxName):
		return NotName("pod.name", p.Name, MaxName)
	case !IsName(p.UID, MaxUID):
		return NotName("pod.uid", p.UID, MaxUID)
	}
	return nil
}

func NotName(field, value string, most int) error {
	return fmt.Errorf("%s is %q: expected at most %d of letters, digits, dots, dashes, underscores", field, Cut(value, MaxFault/4), most)
}

// IsName reports whether a text is empty or consists of what names and ids of
// Kubernetes and of runtimes consist of.
func IsName(text string, most int) bool {
	return len(text) <= most && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == ""
}
