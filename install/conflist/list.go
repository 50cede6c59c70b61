// SPDX-License-Identifier: Apache-2.0

// Package conflist edits CNI configuration lists without loss: whatever is not
// ours keeps its bytes, be it a key nobody knows, a number no float can hold,
// or somebody's way to indent. It is pure.
package conflist

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/libcni"
)

// PluginType is the type that our entry has in a list.
const PluginType = "capture-cni"

// List is a configuration list as a file holds it.
type List struct {
	Name                   string
	CNIVersion             string // the one that a runtime will use, "" where the file has none
	LoadOnlyInlinedPlugins bool   // no drop-in is read
	Plugins                []Plugin

	text []byte
}

// Plugin is one entry of a list.
type Plugin struct {
	Type string

	start, end int // of its object in the text
}

// OtherMesh tells whether it captures pods for somebody else; a pod is captured
// once.
func (p Plugin) OtherMesh() bool {
	switch p.Type {
	case "istio-cni", "linkerd-cni", "kuma-cni", "consul-cni":
		return true
	}
	return false
}

// Parse reads a list as libcni does. The error says what a runtime would find
// wrong with it and quotes nothing of it.
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
		return nil, errors.New("reading a configuration list: plugins are given twice")
	}
	for i, plugin := range conf.Plugins {
		list.Plugins[i].Type = plugin.Network.Type
	}
	return list, nil
}

// Ours counts our entries.
func (l *List) Ours() int {
	return len(l.ourEntries())
}

// Others counts the entries that are not ours.
func (l *List) Others() int { return len(l.Plugins) - l.Ours() }

// locate finds where each element of the top level's "plugins" begins and ends.
func locate(text []byte) ([]Plugin, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if _, err := decoder.Token(); err != nil { // {
		return nil, err
	}
	var plugins []Plugin
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		if key != "plugins" {
			var skipped json.RawMessage
			if err := decoder.Decode(&skipped); err != nil {
				return nil, err
			}
			continue
		}
		elements, err := locateElements(decoder, text)
		if err != nil {
			return nil, err
		}
		plugins = append(plugins, elements...)
	}
	return plugins, nil
}

func locateElements(decoder *json.Decoder, text []byte) ([]Plugin, error) {
	if _, err := decoder.Token(); err != nil { // [
		return nil, err
	}
	var elements []Plugin
	for decoder.More() {
		start := int(decoder.InputOffset())
		start += bytes.IndexByte(text[start:], '{')
		var element json.RawMessage
		if err := decoder.Decode(&element); err != nil {
			return nil, err
		}
		elements = append(elements, Plugin{start: start, end: int(decoder.InputOffset())})
	}
	_, err := decoder.Token() // ]
	return elements, err
}
