// SPDX-License-Identifier: Apache-2.0

// Package config reads the keys of the plugin's entry in a conflist. NetConf reports all faulty keys
// together. The other methods of Input tolerate faulty keys, so that these fail no pod that is known to be
// outside the mesh. The package reads no file.
package config

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
)

// NetConf contains the settings of the plugin's entry in a conflist, validated and with all defaults.
type NetConf struct {
	Kubeconfig        string        // absolute path
	LookupTimeout     time.Duration // of one pod lookup, including retries
	Backend           Backend
	ExcludeNamespaces []string
	Status            StatusMode
	AgentSocket       string // absolute path; empty if disabled
	LogLevel          slog.Level
	Capture           Settings
}

// ExcludesNamespace reports whether the key excludeNamespaces matches the namespace.
func (c NetConf) ExcludesNamespace(namespace string) bool {
	return matchesNamespace(c.ExcludeNamespaces, namespace)
}

// StatusMode decides when the CNI verb STATUS reports an error.
type StatusMode string

const (
	// StatusLenient reports no fault of the node, because a failing STATUS makes the whole node NotReady,
	// even for pods outside the mesh.
	StatusLenient StatusMode = "lenient"
	// StatusStrict reports an error while meshed pods can't start.
	StatusStrict StatusMode = "strict"
)

// Default returns the configuration of an entry that sets no key.
func Default() NetConf {
	return NetConf{
		Kubeconfig:    StateDirectory + "/" + KubeconfigName,
		LookupTimeout: 30 * time.Second,
		Backend:       NFTables,
		Status:        StatusLenient,
		AgentSocket:   RunDirectory + "/" + AgentSocketName,
		LogLevel:      slog.LevelInfo,
		Capture:       DefaultSettings(),
	}
}

// Faults contains a message for each faulty key of a configuration.
type Faults []string

func (f Faults) Error() string { return strings.Join(f, "\n") }

// NetConf reads the plugin's keys, and returns warnings about unknown keys. If values are invalid, the
// error is of type Faults, and each fault names the key, the value and the expected form.
func (in Input) NetConf() (NetConf, []string, error) {
	conf := Default()
	var faults Faults
	unknown := decode(in.fields, Keys(&conf), "", &faults)
	var warnings []string
	for _, key := range unknown {
		if !isStandardKey(key) {
			warnings = append(warnings, fmt.Sprintf("configuration key %q is not known and has no effect", Shortened(key)))
		}
	}
	warnings = Few(warnings, "configuration keys are not known and have no effect")
	if len(faults) > 0 {
		return NetConf{}, warnings, faults
	}
	return conf, warnings, nil
}

// decode stores the values of the documented keys in their fields, adds a fault for each invalid value,
// and returns the names of the other keys. In messages, path precedes each name.
func decode(fields map[string]json.RawMessage, keys []Key, path string, faults *Faults) (unknown []string) {
	rest := maps.Clone(fields)
	for _, key := range keys {
		value, ok := fields[key.Name]
		if !ok {
			continue
		}
		delete(rest, key.Name)
		if key.Keys != nil {
			unknown = append(unknown, decodeObject(value, key, path, faults)...)
			continue
		}
		if err := key.set(value); err != nil {
			*faults = append(*faults, fmt.Sprintf("configuration key %q is %s: %v", path+key.Name, Shortened(string(value)), err))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rest)) {
		unknown = append(unknown, path+name)
	}
	return unknown
}

func decodeObject(value json.RawMessage, key Key, path string, faults *Faults) (unknown []string) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(value, &fields); err != nil || fields == nil {
		*faults = append(*faults, fmt.Sprintf("configuration key %q is %s: expected an object", path+key.Name, Shortened(string(value))))
		return nil
	}
	return decode(fields, key.Keys, path+key.Name+".", faults)
}

// isStandardKey reports whether CNI or a runtime defines the key.
func isStandardKey(key string) bool {
	switch key {
	case "cniVersion", "cniVersions", "name", "type", "capabilities", "runtimeConfig", "prevResult", "args", "ipam", "dns":
		return true
	}
	return strings.HasPrefix(key, "cni.dev/")
}
