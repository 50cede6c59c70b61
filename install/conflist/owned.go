// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
)

// FromConf makes a list of a plain .conf, of which it is the only plugin, so
// that an entry can follow it. The name and the version stay the conf's own:
// leases of its address manager hang on the name.
func FromConf(conf []byte) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(conf, &fields); err != nil {
		return nil, fmt.Errorf("reading a configuration: %w", withoutContent(err))
	}
	list := struct {
		CNIVersion json.RawMessage   `json:"cniVersion,omitempty"`
		Name       json.RawMessage   `json:"name,omitempty"`
		Plugins    []json.RawMessage `json:"plugins"`
	}{fields["cniVersion"], fields["name"], []json.RawMessage{bytes.TrimSpace(conf)}}
	return marshal(list)
}

// sourceKey is where an embedding list says what it embeds. Runtimes pass over
// keys that they don't know.
const sourceKey = "capture-cni.io/source"

// Source names what a list embeds: a file, and the hash of what it held.
func Source(file string, text []byte) string {
	return fmt.Sprintf("%s sha256:%x", file, sha256.Sum256(text))
}

// SourceOf reads what an embedding list says of itself, "" where it says nothing.
func SourceOf(list []byte) string {
	var fields map[string]json.RawMessage
	var source string
	if json.Unmarshal(list, &fields) != nil || json.Unmarshal(fields[sourceKey], &source) != nil {
		return ""
	}
	return source
}

// Embed makes a list of our own that does what the primary's does, with our
// entry in it: its name, its version and all its keys are kept, and entries of
// other meshes are left out. It says what it embeds.
func Embed(primary *List, source string, entry []byte) ([]byte, error) {
	edited := primary
	for i := len(primary.Plugins) - 1; i >= 0; i-- {
		if primary.Plugins[i].OtherMesh() && len(edited.Plugins) > 1 {
			edited = edited.deleted(i)
		}
	}
	text, err := edited.With(entry)
	if err != nil {
		return nil, err
	}
	brace := bytes.IndexByte(text, '{') + 1
	said, err := json.Marshal(source)
	if err != nil {
		return nil, fmt.Errorf("writing a configuration: %w", err)
	}
	return slices.Concat(text[:brace], fmt.Appendf(nil, "\n  %q: %s,", sourceKey, said), text[brace:]), nil
}

// marshal writes a document as people read it, and leaves <, > and & alone.
func marshal(value any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return nil, fmt.Errorf("writing a configuration: %w", err)
	}
	return out.Bytes(), nil
}
