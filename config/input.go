// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
)

// capabilityPodAnnotations is the CNI capability by which the plugin's entry in a conflist requests the
// pod's annotations. It is also the annotations' key in runtimeConfig.
const capabilityPodAnnotations = "io.kubernetes.cri.pod-annotations"

// Input is a network configuration, such as the one on the plugin's stdin. Only the method NetConf returns
// an error for an invalid value of one of the plugin's keys. The other methods ignore or replace such a
// value, because a fault in the plugin's entry must not fail pods that are known to be outside the mesh.
type Input struct {
	fields map[string]json.RawMessage
}

// Read decodes a network configuration. It returns an error for text that is not a JSON object.
func Read(text []byte) (Input, error) {
	var in Input
	if err := json.Unmarshal(text, &in.fields); err != nil {
		return in, fmt.Errorf("reading the network configuration: %w", err)
	}
	if in.fields == nil {
		return in, errors.New("reading the network configuration: expected a JSON object, got null")
	}
	return in, nil
}

// CNIVersion returns the version of the CNI protocol that the runtime uses.
func (in Input) CNIVersion() string {
	version, _ := lenient[string](in.fields["cniVersion"])
	return version
}

// PrevResult returns the bytes of the previous plugin's result, or nil if no plugin precedes this one
// in the list.
func (in Input) PrevResult() []byte {
	raw := in.fields["prevResult"]
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return nil
	}
	return raw
}

// PodAnnotations returns the pod's annotations, or nil if the runtime did not pass them.
func (in Input) PodAnnotations() map[string]string {
	runtime, _ := lenient[map[string]json.RawMessage](in.fields["runtimeConfig"])
	annotations, _ := lenient[map[string]string](runtime[capabilityPodAnnotations])
	return annotations
}

// ExcludesNamespace reports whether the key excludeNamespaces matches the namespace.
func (in Input) ExcludesNamespace(namespace string) bool {
	excluded, _ := lenient[[]string](in.fields["excludeNamespaces"])
	return matchesNamespace(excluded, namespace)
}

// matchesNamespace reports whether an element of the list is the namespace's name, or a prefix of the
// name that is followed by *. It ignores the element "*", for which NetConf returns an error.
func matchesNamespace(excluded []string, namespace string) bool {
	return slices.ContainsFunc(excluded, func(name string) bool {
		prefix, isPrefix := strings.CutSuffix(name, "*")
		return name == namespace || isPrefix && prefix != "" && strings.HasPrefix(namespace, prefix)
	})
}

// Meshes returns the configured meshes, or the default meshes if the key is absent. If the list is
// invalid, Meshes returns all meshes, so that the ADDs of meshed pods fail with NetConf's error.
func (in Input) Meshes() []MeshName {
	raw, ok := in.fields["meshes"]
	if !ok {
		return DefaultSettings().Meshes
	}
	if names, err := meshNames(raw); err == nil {
		return names
	}
	return Meshes() // not this method, but the function that returns all meshes
}

// AgentSocket returns the configured socket, or the default if the key is absent or invalid.
func (in Input) AgentSocket() string {
	if socket, err := agentSocket(in.fields["agentSocket"]); err == nil {
		return socket
	}
	return Default().AgentSocket
}

// LogLevel returns the configured level, or the default if the key is absent or invalid.
func (in Input) LogLevel() slog.Level {
	if level, err := logLevel(in.fields["logLevel"]); err == nil {
		return level
	}
	return Default().LogLevel
}

// StrictStatus reports whether the configured status mode is strict.
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
