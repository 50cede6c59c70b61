// SPDX-License-Identifier: Apache-2.0

package lookup

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Accepted is the byte that the agent sends when it begins to serve a connection. Until this byte
// arrives, possibly only the kernel has accepted the connection.
const Accepted byte = 0x06

// These are the limits of messages, in bytes. An answer contains one pod's annotations, which
// Kubernetes limits to 256 KiB. As JSON, with escapes, they can be longer.
const (
	MaxRequest = 4 << 10
	MaxAnswer  = 4 << 20
)

// Request asks the agent, or capture-cni-lookup, for one pod. A request without a pod's name asks whether a
// lookup would work. The agent then checks whether it has read its node's pods, and capture-cni-lookup
// checks the credentials without a request to the API server.
type Request struct {
	Version int            `json:"version"` // the caller's capture.PodVersion
	Pod     capture.PodRef `json:"pod"`
	Digest  string         `json:"digest,omitempty"` // of the answer that the caller already has

	// Injected, in a request that names no pod, asks the agent for Answer.Injected.
	Injected bool `json:"injected,omitempty"`

	// The fields below are only for capture-cni-lookup.
	Directory string `json:"directory,omitempty"` // of the credentials
	Attempt   int    `json:"attempt,omitempty"`   // from 1; each attempt begins with the next address of the API server
}

// Answer contains the pod, a fault, or neither, for example if the pod is unchanged or the Request names
// none.
type Answer struct {
	Version       int          `json:"version"` // the answering program's capture.PodVersion, or the Request's earlier Version
	UID           string       `json:"uid,omitempty"`
	HasController bool         `json:"hasController,omitempty"` // a controller would replace the pod
	Pod           *capture.Pod `json:"pod,omitempty"`
	Digest        string       `json:"digest,omitempty"`    // of all fields above; only the agent sets it
	Unchanged     bool         `json:"unchanged,omitempty"` // the answer still has the Request's digest; except Version, no other field is set
	Injected      []string     `json:"injected,omitempty"`  // UIDs of the node's pods that are injected and not exempt by their fields
	Fault         *Fault       `json:"fault,omitempty"`
}

// FaultKind decides how the caller continues after a fault.
type FaultKind string

const (
	// Gone means that the API server has no such pod now, or has another pod of that name. To a request
	// without a UID, the agent also answers so about another node's pod.
	Gone FaultKind = "gone"
	// Failed means that a retry may help.
	Failed FaultKind = "failed"
	// Refused means that every retry fails until an operator intervenes.
	Refused FaultKind = "refused"
	// Untrusted means that the kubeconfig is invalid or not in an allowed directory, that a file that it
	// names is invalid or not in the kubeconfig's directory, or that users other than root can write to
	// one of these files or to the directory.
	Untrusted FaultKind = "untrusted"
	// NoCredentials means that this node has no credentials, or no program capture-cni-lookup.
	NoCredentials FaultKind = "noCredentials"
)

// Fault says why an answer contains no pod.
type Fault struct {
	Kind       FaultKind     `json:"kind"`
	Message    string        `json:"message"`
	RetryAfter time.Duration `json:"retryAfter,omitempty"` // nanoseconds; the delay that an overloaded API server requests
}

func (f *Fault) Error() string { return f.Message }

// IsGone reports whether a lookup failed with a fault of the kind Gone.
func IsGone(err error) bool {
	fault, ok := errors.AsType[*Fault](err)
	return ok && fault.Kind == Gone
}

// WriteMessage writes the length of a JSON document, as 4 bytes in big-endian order, and then the
// document.
func WriteMessage(w io.Writer, document []byte) error {
	framed := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(document)), uint32(len(document)))
	_, err := w.Write(append(framed, document...))
	return err
}

// ReadMessage reads a document that WriteMessage wrote. It returns an error if the document has more
// than limit bytes.
func ReadMessage(r io.Reader, limit int) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if int64(size) > int64(limit) {
		return nil, fmt.Errorf("a message of %d bytes: expected at most %d", size, limit)
	}
	document := make([]byte, size)
	_, err := io.ReadFull(r, document)
	return document, err
}

// otherVersion is the error if an answer has another version of a Pod's fields than the request, or has
// an earlier version that omits the pod's fence. Its value is the answer's version.
type otherVersion int

func (v otherVersion) Error() string {
	return fmt.Sprintf("the answer has version %d of a pod's fields, expected %d: "+
		"the agent and the programs on the node are of different releases until the agent has replaced the programs", v, capture.PodVersion)
}

// inTheirVersion sends a request in this release's version, and repeats it in an earlier version if the
// agent or capture-cni-lookup knows only that version. The versions can differ while an agent replaces
// the programs.
func inTheirVersion(request Request, ask func(Request) (Answer, error)) (Answer, error) {
	request.Version = capture.PodVersion
	answer, err := ask(request)
	if theirs, ok := errors.AsType[otherVersion](err); ok && theirs >= capture.OldestPodVersion && theirs < capture.PodVersion {
		request.Version = int(theirs)
		return ask(request)
	}
	return answer, err
}

// ParseAnswer decodes the answer to a request. It returns the answer's fault as an error, and an error
// if the answer is not valid JSON, has another version, omits the pod's fence or, unless the pod is
// unchanged, does not contain the requested pod.
func ParseAnswer(document []byte, request Request) (Answer, error) {
	var answer Answer
	if err := json.Unmarshal(document, &answer); err != nil {
		return Answer{}, fmt.Errorf("reading the answer: %w", err)
	}
	switch {
	case answer.Version != request.Version:
		return Answer{}, otherVersion(answer.Version)
	case answer.Fault != nil:
		return Answer{}, answer.Fault
	case request.Pod.Name == "", answer.Unchanged && request.Digest != "":
		return answer, nil
	case answer.Pod == nil || answer.UID == "":
		return Answer{}, errors.New("reading the answer: it has no pod")
	case request.Pod.UID != "" && request.Pod.UID != answer.UID:
		return Answer{}, fmt.Errorf("reading the answer: it has the pod with UID %s, expected %s", answer.UID, request.Pod.UID)
	}
	if answer.Version < capture.PodVersion && capture.Fenced(answer.Pod.Annotations) { // it omits the fence's values
		return Answer{}, otherVersion(answer.Version)
	}
	answer.Pod.Complete(answer.Version)
	return answer, nil
}
