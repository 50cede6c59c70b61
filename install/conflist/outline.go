// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Outline describes a list by its name, version, disableCheck and plugins' types and capabilities, which
// can't contain a secret. It omits all other keys.
type Outline struct {
	Name         string          `json:"name"`
	CNIVersion   string          `json:"cniVersion,omitempty"`
	DisableCheck bool            `json:"disableCheck,omitempty"`
	Plugins      []PluginOutline `json:"plugins"`           // in the list's order
	LeftOut      int             `json:"leftOut,omitempty"` // number of plugins beyond maxPlugins
	Fault        string          `json:"fault,omitempty"`   // why libcni or the agent can't use the list; empty for a plain configuration
}

// PluginOutline describes one entry of a list.
type PluginOutline struct {
	Type         string   `json:"type"`
	Capabilities []string `json:"capabilities,omitempty"` // only the names
	LeftOut      int      `json:"leftOut,omitempty"`      // number of capabilities beyond maxCapabilities

	// Own is the text of our entry, or nil for another plugin's entry.
	Own json.RawMessage `json:"-"`
}

// Limits of an Outline. They are far above the sizes of lists on real nodes.
const (
	maxPlugins      = 64
	maxCapabilities = 32
	maxName         = 128
)

// OutlineOf describes as much of a list as possible. It treats a plain configuration as a list with one
// plugin. The errors quote nothing of the text.
func OutlineOf(text []byte) (Outline, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return Outline{}, withoutContent(err)
	}
	var entries []json.RawMessage
	if raw, ok := fields["plugins"]; ok && json.Unmarshal(raw, &entries) != nil {
		return Outline{}, errors.New("plugins is not a list")
	} else if !ok {
		entries = []json.RawMessage{text}
	}
	o := Outline{Name: nameIn(fields["name"]), CNIVersion: nameIn(fields["cniVersion"]), LeftOut: max(0, len(entries)-maxPlugins)}
	_ = json.Unmarshal(fields["disableCheck"], &o.DisableCheck) // a value of another type counts as absent
	for _, entry := range entries[:len(entries)-o.LeftOut] {
		o.Plugins = append(o.Plugins, pluginOutlineOf(entry))
	}
	if _, isList := fields["plugins"]; isList {
		if _, err := Parse(text); err != nil {
			o.Fault = err.Error()
		}
	}
	return o, nil
}

func pluginOutlineOf(entry json.RawMessage) PluginOutline {
	var fields, capabilities map[string]json.RawMessage
	_ = json.Unmarshal(entry, &fields) // a value of another type counts as absent
	_ = json.Unmarshal(fields["capabilities"], &capabilities)
	names := slices.Sorted(maps.Keys(capabilities))
	p := PluginOutline{Type: nameIn(fields["type"]), LeftOut: max(0, len(names)-maxCapabilities)}
	for _, name := range names[:len(names)-p.LeftOut] {
		p.Capabilities = append(p.Capabilities, Shown(name))
	}
	if p.Type == PluginType {
		p.Own = entry
	}
	return p
}

// notShown replaces a value that does not have the form of a name.
const notShown = "(not a name, not shown)"

func nameIn(raw json.RawMessage) string {
	var text string
	_ = json.Unmarshal(raw, &text) // a value of another type counts as absent
	return Shown(text)
}

// Shown returns a text unchanged if it has the form of a name or a version, and otherwise a
// placeholder. See https://www.cni.dev/docs/spec/#configuration-format.
func Shown(text string) string {
	if len(text) > maxName || strings.Trim(text, nameCharacters) != "" {
		return notShown
	}
	return text
}

const nameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

// withoutContent returns an error that quotes nothing of the text that could not be parsed, because
// errors go to logs and support archives, and the text may contain secrets.
func withoutContent(err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("not JSON at byte %d", syntax.Offset)
	}
	if form, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		kind, _, _ := strings.Cut(form.Value, " ") // a number's literal may follow
		return fmt.Errorf("not of the expected form: a JSON %s where another type is expected", kind)
	}
	return errors.New("libcni can't load it: expected a name, versions as texts, " +
		"true or false for disableCheck, disableGC and loadOnlyInlinedPlugins, and one or more plugins, each with a type")
}
