// SPDX-License-Identifier: Apache-2.0

// Package conflist adds the plugin's entry to the CNI configuration of the runtime or of Multus, as the
// mode says, and finds the lists that the runtime may load. When it edits a list, it changes only the
// bytes of our entry, so that unknown keys, numbers beyond float64, and the indentation stay.
package conflist

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"

	"github.com/capture-cni/capture-cni/install/report"
)

// PluginType is the type of our entry.
const PluginType = "capture-cni"

// List is a network configuration list in a file.
type List struct {
	Name                   string
	CNIVersion             string // as libcni reads it; empty if the list has none
	LoadOnlyInlinedPlugins bool   // runtimes load no drop-ins for this list
	Plugins                []Plugin

	text []byte
}

// Plugin is an entry of a list.
type Plugin struct {
	Type    string
	Ambient bool // an istio-cni that captures for Istio's ambient mode

	start, end int // offsets of the object in the text
}

// OtherMesh reports whether the plugin is istio-cni, or captures pods for another mesh.
func (p Plugin) OtherMesh() bool {
	return p.IsIstioCNI() || slices.Contains(report.MeshPlugins(), p.Type)
}

// IsIstioCNI reports whether the plugin is istio-cni, which captures Istio's pods, as capture-cni does by
// default. Older installers add a prefix to its name.
func (p Plugin) IsIstioCNI() bool {
	return p.Type == report.IstioCNI || strings.HasSuffix(p.Type, "-"+report.IstioCNI)
}

func isAmbient(entry []byte) bool {
	var keys struct {
		AmbientEnabled bool `json:"ambient_enabled"`
	}
	return json.Unmarshal(entry, &keys) == nil && keys.AmbientEnabled
}

// Parse parses a list as libcni does, but returns an error if the key plugins occurs twice. Its errors
// quote nothing of the list.
func Parse(text []byte) (*List, error) {
	conf, err := libcni.NetworkConfFromBytes(text)
	if err != nil {
		return nil, fmt.Errorf("reading a configuration list: %w", withoutContent(err))
	}
	list := &List{
		Name: conf.Name, CNIVersion: conf.CNIVersion, LoadOnlyInlinedPlugins: conf.LoadOnlyInlinedPlugins,
		text: text,
	}
	list.Plugins, err = locate(text)
	if err != nil {
		return nil, fmt.Errorf("reading a configuration list: %w", withoutContent(err))
	}
	if len(list.Plugins) != len(conf.Plugins) {
		return nil, errors.New("reading a configuration list: the key plugins occurs twice")
	}
	for i, plugin := range conf.Plugins {
		list.Plugins[i].Type = plugin.Network.Type
		list.Plugins[i].Ambient = list.Plugins[i].IsIstioCNI() && isAmbient(plugin.Bytes)
	}
	return list, nil
}

func (p Plugin) isOurs() bool { return p.Type == PluginType }

func isOther(p Plugin) bool { return !p.isOurs() }

// HasOurs reports whether the list has an entry of ours.
func (l *List) HasOurs() bool { return slices.ContainsFunc(l.Plugins, Plugin.isOurs) }

// HasOthers reports whether the list has an entry of another plugin.
func (l *List) HasOthers() bool { return slices.ContainsFunc(l.Plugins, isOther) }

// locate returns the elements of the top-level key "plugins", with their offsets in the text.
func locate(text []byte) ([]Plugin, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if _, err := decoder.Token(); err != nil { // the opening brace
		return nil, err
	}
	var plugins []Plugin
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, err
		}
		if key != "plugins" {
			continue
		}
		var elements []json.RawMessage
		if json.Unmarshal(value, &elements) != nil {
			return nil, nil // the key occurs twice, and libcni read the other value
		}
		end := int(decoder.InputOffset()) - len(value)
		for _, element := range elements {
			start := end + bytes.Index(text[end:], element) // white space and a bracket or comma precede the element
			end = start + len(element)
			plugins = append(plugins, Plugin{start: start, end: end})
		}
	}
	return plugins, nil
}
