// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
)

// capabilityPodAnnotations is under what a runtime hands over the pod's
// annotations, where our entry declares the capability.
const capabilityPodAnnotations = "io.kubernetes.cri.pod-annotations"

// Input is what the runtime wrote to stdin, not judged yet: its lenient
// readers take a value of the wrong form for absent, because a fault of our
// entry must not hold up a pod that has nothing to do with us.
type Input struct {
	fields map[string]json.RawMessage
}

// Read splits stdin into its keys. The error means that it is no JSON object.
func Read(stdin []byte) (Input, error) {
	var in Input
	if err := json.Unmarshal(stdin, &in.fields); err != nil {
		return in, fmt.Errorf("reading the network configuration on stdin: %w", err)
	}
	if in.fields == nil {
		return in, errors.New("reading the network configuration on stdin: expected a JSON object, got null")
	}
	return in, nil
}

// CNIVersion is the version of the protocol that the runtime speaks.
func (in Input) CNIVersion() string {
	version, _ := lenient[string](in.fields["cniVersion"])
	return version
}

// PrevResult is what the plugins before us returned, its own bytes, or nil
// where no plugin came before.
func (in Input) PrevResult() []byte {
	raw := in.fields["prevResult"]
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return nil
	}
	return raw
}

// PodAnnotations are the pod's annotations as the runtime handed them over;
// ok tells whether it did.
func (in Input) PodAnnotations() (annotations map[string]string, ok bool) {
	runtime, _ := lenient[map[string]json.RawMessage](in.fields["runtimeConfig"])
	annotations, ok = lenient[map[string]string](runtime[capabilityPodAnnotations])
	return annotations, ok && annotations != nil
}

// ExcludesNamespace tells whether pods of the namespace are to be left alone.
func (in Input) ExcludesNamespace(namespace string) bool {
	excluded, _ := lenient[[]string](in.fields["excludeNamespaces"])
	return slices.Contains(excluded, namespace)
}

// AgentSocket is the configured socket, or the default.
func (in Input) AgentSocket() string {
	if socket, err := agentSocket(in.fields["agentSocket"]); err == nil {
		return socket
	}
	return Default().AgentSocket
}

// LogLevel is the configured level, or the default.
func (in Input) LogLevel() slog.Level {
	if level, err := logLevel(in.fields["logLevel"]); err == nil {
		return level
	}
	return Default().LogLevel
}

// StrictStatus tells whether STATUS is to judge.
func (in Input) StrictStatus() bool {
	mode, _ := lenient[StatusMode](in.fields["status"])
	return mode == StatusStrict
}

func lenient[T any](raw json.RawMessage) (value T, ok bool) {
	if raw == nil || json.Unmarshal(raw, &value) != nil {
		var zero T
		return zero, false
	}
	return value, true
}
