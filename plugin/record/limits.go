// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// These limits keep a record far smaller than the largest datagram, and let its names fit into labels,
// file names and URLs. MaxNamespace and MaxName are the limits of Kubernetes.
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
	MaxFault     = 256 // bytes of a record's text that an error quotes
)

const Ellipsis = "…"

func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + Ellipsis
}

// fit returns the record with shortened texts, and without invalid names, so that the agent accepts it.
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

// fitAll returns the first MaxWarnings texts, each cut after MaxWarning bytes.
func fitAll(texts []string) (fitting []string) {
	for _, text := range texts[:min(len(texts), MaxWarnings)] {
		fitting = append(fitting, Cut(text, MaxWarning))
	}
	return fitting
}

// CheckPod returns an error if a field of the PodRef can't be a name or a UID in Kubernetes.
func CheckPod(p capture.PodRef) error {
	return cmp.Or(
		CheckName("pod.namespace", p.Namespace, MaxNamespace),
		CheckName("pod.name", p.Name, MaxName),
		CheckName("pod.uid", p.UID, MaxUID),
	)
}

// CheckName returns an error if a text is longer than most, or contains a character that no name or id
// of Kubernetes and of runtimes contains. An empty text is valid.
func CheckName(field, text string, most int) error {
	if len(text) <= most && strings.Trim(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == "" {
		return nil
	}
	return fmt.Errorf("%s is %q: expected at most %d letters, digits, dots, dashes, underscores", field, Cut(text, MaxFault/4), most)
}
