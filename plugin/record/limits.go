// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/capture-cni/capture-cni/plugin/capture"
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
	if CheckPod(r.Pod) != nil {
		r.Pod = capture.PodRef{}
	}
	if CheckName("sandbox", r.Sandbox, MaxSandbox) != nil {
		r.Sandbox = ""
	}
	if CheckName("backend", r.Backend, MaxBackend) != nil {
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

// CheckPod returns why a pod's names are none of Kubernetes.
func CheckPod(p capture.PodRef) error {
	return cmp.Or(
		CheckName("pod.namespace", p.Namespace, MaxNamespace),
		CheckName("pod.name", p.Name, MaxName),
		CheckName("pod.uid", p.UID, MaxUID),
	)
}

// CheckName refuses a text with other characters than names and ids of Kubernetes and of
// runtimes have, and a longer one. An empty text is allowed.
func CheckName(field, text string, most int) error {
	if len(text) <= most && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == "" {
		return nil
	}
	return fmt.Errorf("%s is %q: expected at most %d of letters, digits, dots, dashes, underscores", field, Cut(text, MaxFault/4), most)
}
