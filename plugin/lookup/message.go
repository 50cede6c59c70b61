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

// Accepted is the byte that the agent sends when it begins to serve a connection. A
// connection without it is one that only the kernel has accepted.
const Accepted byte = 0x06

// Limits of messages, in bytes. An answer holds the annotations of one pod, which
// Kubernetes limits to 256 KiB, escaped as JSON.
const (
	MaxRequest = 4 << 10
	MaxAnswer  = 4 << 20
)

// Request asks the agent, or capture-cni-lookup, for one pod. Without a name it asks
// whether one could be read: whether the agent has read its node's pods, or whether
// the credentials are valid as far as the program can tell without the API server.
type Request struct {
	Version int            `json:"version"` // the caller's capture.PodVersion
	Pod     capture.PodRef `json:"pod"`
	Digest  string         `json:"digest,omitempty"` // of the answer that the caller has already

	// Injected, in a request that names no pod, asks the agent for Answer.Injected.
	Injected bool `json:"injected,omitempty"`

	// Only for capture-cni-lookup.
	Directory string `json:"directory,omitempty"` // of the credentials
	Attempt   int    `json:"attempt,omitempty"`   // from 1; each begins with the next address of the API server
}

// Answer is the pod, or a fault.
type Answer struct {
	Version       int          `json:"version"` // capture.PodVersion of the program that answers
	UID           string       `json:"uid,omitempty"`
	HasController bool         `json:"hasController,omitempty"` // a controller would replace the pod
	Pod           *capture.Pod `json:"pod,omitempty"`
	Digest        string       `json:"digest,omitempty"`    // of all of the above; only the agent sets it
	Unchanged     bool         `json:"unchanged,omitempty"` // the request's digest is the pod's: nothing else is set
	Injected      []string     `json:"injected,omitempty"`  // UIDs of the node's pods that are injected now and not exempt by themselves
	Fault         *Fault       `json:"fault,omitempty"`
}

// FaultKind decides what follows a fault.
type FaultKind string

const (
	// Gone: the API server has no such pod, or another one of that name. It may have
	// it later.
	Gone FaultKind = "gone"
	// Failed: a retry may help.
	Failed FaultKind = "failed"
	// Refused: every retry fails until an operator intervenes.
	Refused FaultKind = "refused"
	// Untrusted: users other than root can write the credentials, or they are not valid.
	Untrusted FaultKind = "untrusted"
	// NoCredentials: there are none on this node.
	NoCredentials FaultKind = "noCredentials"
)

// Fault is why there is no pod.
type Fault struct {
	Kind       FaultKind     `json:"kind"`
	Message    string        `json:"message"`
	RetryAfter time.Duration `json:"retryAfter,omitempty"` // nanoseconds; what an overloaded API server asks for
}

func (f *Fault) Error() string { return f.Message }

// IsGone reports whether a lookup failed because the pod does not exist, or not with
// that UID.
func IsGone(err error) bool {
	fault, ok := errors.AsType[*Fault](err)
	return ok && fault.Kind == Gone
}

// WriteMessage writes a JSON document after its length: 4 bytes, the highest first.
func WriteMessage(w io.Writer, document []byte) error {
	framed := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(document)), uint32(len(document)))
	_, err := w.Write(append(framed, document...))
	return err
}

// ReadMessage reads what WriteMessage wrote, of at most limit bytes.
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

// otherVersion is the version of the program that answered a request of another version. It
// says nothing else.
type otherVersion int

func (v otherVersion) Error() string {
	return fmt.Sprintf("the answer has version %d of a pod's fields, expected %d: "+
		"plugin and agent are of different releases until the agent has replaced the plugin", v, capture.PodVersion)
}

// inTheirVersion asks in today's version, and then in that of an earlier release: this process
// may run while an agent replaces the programs.
func inTheirVersion(request Request, ask func(Request) (Answer, error)) (Answer, error) {
	request.Version = capture.PodVersion
	answer, err := ask(request)
	if theirs, ok := errors.AsType[otherVersion](err); ok && theirs >= capture.OldestPodVersion && theirs < capture.PodVersion {
		request.Version = int(theirs)
		return ask(request)
	}
	return answer, err
}

// ParseAnswer reads an answer to a request.
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
	if answer.Version < capture.PodVersion && capture.Fenced(answer.Pod.Annotations) { // that release leaves out its values
		return Answer{}, otherVersion(answer.Version)
	}
	answer.Pod.Complete(answer.Version)
	return answer, nil
}
