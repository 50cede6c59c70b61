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

// Outline holds the keys of a list that CNI defines and that can hold no secret.
// Values of all other keys are left out.
type Outline struct {
	Name         string          `json:"name"`
	CNIVersion   string          `json:"cniVersion,omitempty"`
	DisableCheck bool            `json:"disableCheck,omitempty"`
	Plugins      []PluginOutline `json:"plugins"`
	LeftOut      int             `json:"leftOut,omitempty"` // plugins beyond maxPlugins
	Fault        string          `json:"fault,omitempty"`   // why libcni would not load it
}

// PluginOutline is one entry of a list, in its order.
type PluginOutline struct {
	Type         string   `json:"type"`
	Capabilities []string `json:"capabilities,omitempty"` // names only
	LeftOut      int      `json:"leftOut,omitempty"`      // capabilities beyond maxCapabilities

	// Own is the text of an entry of ours, nil for another plugin's.
	Own json.RawMessage `json:"-"`
}

// Limits of an Outline. Lists on real nodes have a tenth of that.
const (
	maxPlugins      = 64
	maxCapabilities = 32
	maxName         = 128
)

// OutlineOf reads as much as it can of a list, or of a plain configuration as a
// list of one plugin. Errors quote none of the text.
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
	_ = json.Unmarshal(fields["disableCheck"], &o.DisableCheck) // another type counts as absent
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
	_ = json.Unmarshal(entry, &fields) // another type counts as absent
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

// notShown replaces a value that has not the form of a name.
const notShown = "(not a name, not shown)"

func nameIn(raw json.RawMessage) string {
	var text string
	_ = json.Unmarshal(raw, &text) // another type counts as absent
	return Shown(text)
}

// Shown returns a text in the form of a name or a version unchanged, and a
// placeholder for any other: https://www.cni.dev/docs/spec/#configuration-format.
func Shown(text string) string {
	if len(text) > maxName || strings.Trim(text, nameCharacters) != "" {
		return notShown
	}
	return text
}

const nameCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

// withoutContent returns an error that does not quote the text that could not be
// read. Errors go to logs and support archives, and the text may hold secrets.
func withoutContent(err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("not JSON at byte %d", syntax.Offset)
	}
	if form, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		kind, _, _ := strings.Cut(form.Value, " ") // after it comes a number's literal
		return fmt.Errorf("not of the expected form: a JSON %s where another type is expected", kind)
	}
	return errors.New("libcni can't load it: expected a name, a cniVersion, true or false for disableCheck, and plugins that each have a type")
}
