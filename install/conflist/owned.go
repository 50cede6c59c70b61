// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
)

// fromConf converts a plain configuration to a list with one plugin, so that With can add our entry. The
// list keeps the network's name, because IPAM plugins store their leases under this name.
func fromConf(conf []byte) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(conf, &fields); err != nil {
		return nil, fmt.Errorf("reading a configuration: %w", withoutContent(err))
	}
	list := struct {
		CNIVersion json.RawMessage   `json:"cniVersion,omitempty"`
		Name       json.RawMessage   `json:"name,omitempty"`
		Plugins    []json.RawMessage `json:"plugins"`
	}{fields["cniVersion"], fields["name"], []json.RawMessage{bytes.TrimSpace(conf)}}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(list) // the values were just decoded
	return out.Bytes(), nil
}

// sourceKey is the key with which a list of mode owned names its source. Runtimes ignore unknown keys.
const sourceKey = "capture-cni.io/source"

// source returns a text with the name of a primary file and the hash of its content.
func source(file string, text []byte) string {
	return fmt.Sprintf("%s sha256:%x", file, sha256.Sum256(text))
}

// sourceOf returns the source of a list of mode owned, or "" for any other list.
func sourceOf(list []byte) string {
	var fields map[string]json.RawMessage
	var source string
	if json.Unmarshal(list, &fields) != nil || json.Unmarshal(fields[sourceKey], &source) != nil {
		return ""
	}
	return source
}

// embed returns a copy of the primary list with our entry and the source. The copy lacks istio-cni,
// which by default captures the same pods as our plugin. But an istio-cni with ambient mode stays,
// because ambient pods need it.
func embed(primary *List, source string, entry []byte) ([]byte, error) {
	text, err := primary.without(func(p Plugin) bool { return p.IsIstioCNI() && !p.Ambient }).With(entry)
	if err != nil {
		return nil, err
	}
	brace := bytes.IndexByte(text, '{') + 1
	encoded, _ := json.Marshal(source) // a string can always be encoded
	return slices.Concat(text[:brace], fmt.Appendf(nil, "\n  %q: %s,", sourceKey, encoded), text[brace:]), nil
}
