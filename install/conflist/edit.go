// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
)

// errNoInterfacePlugin is the error for a list that contains no plugin except ours.
var errNoInterfacePlugin = errors.New("the list has no interface plugin: capture-cni can't be the first one")

// With returns the list's text with our entry, exactly once, after the interface plugin and istio-cni. If
// our entry is already there and up to date, With returns the text unchanged.
func (l *List) With(entry []byte) ([]byte, error) {
	if !l.HasOthers() {
		return nil, errNoInterfacePlugin
	}
	afterOther := slices.IndexFunc(l.Plugins, isOther)
	kept := slices.IndexFunc(l.Plugins[afterOther:], Plugin.isOurs)
	// Our entry must follow istio-cni, so that our plugin detects a pod that is already captured. It may
	// precede the plugins of other meshes, because the installers of linkerd-cni and consul-cni move their
	// own entry to the end whenever another program changes the list.
	if kept < 0 || slices.ContainsFunc(l.Plugins[afterOther+kept:], Plugin.IsIstioCNI) {
		return l.without(Plugin.isOurs).appended(entry), nil
	}
	edited := l.without(func(p Plugin) bool { return p.isOurs() && p != l.Plugins[afterOther+kept] })
	return edited.replaced(slices.IndexFunc(edited.Plugins, Plugin.isOurs), entry), nil
}

// Without returns the list's text without our entries. If With added the entry, and the list did not
// change after that, this text equals the one before With.
func (l *List) Without() ([]byte, error) {
	if !l.HasOthers() {
		return nil, errNoInterfacePlugin
	}
	return l.without(Plugin.isOurs).text, nil
}

// Has reports whether the list contains our entry as With would write it.
func (l *List) Has(entry []byte) bool {
	text, err := l.With(entry)
	return err == nil && bytes.Equal(text, l.text)
}

// without returns the list without the elements for which dropped returns true. It never deletes the
// last remaining element.
func (l *List) without(dropped func(Plugin) bool) *List {
	edited := l
	for i, plugin := range slices.Backward(l.Plugins) {
		if dropped(plugin) && len(edited.Plugins) > 1 {
			edited = edited.deleted(i)
		}
	}
	return edited
}

// deleted returns the list without the element i and its comma.
func (l *List) deleted(i int) *List {
	from, to := l.Plugins[i].start, l.Plugins[i].end
	if i > 0 {
		from = l.Plugins[i-1].end
	} else {
		to = l.Plugins[1].start
	}
	edited := *l
	edited.text = slices.Concat(l.text[:from], l.text[to:])
	edited.Plugins = slices.Delete(slices.Clone(l.Plugins), i, i+1)
	for j := i; j < len(edited.Plugins); j++ {
		edited.Plugins[j].start -= to - from
		edited.Plugins[j].end -= to - from
	}
	return &edited
}

// replaced returns the text with new content of the element i. If the old content is the same JSON, the
// text stays unchanged.
func (l *List) replaced(i int, entry []byte) []byte {
	current := l.text[l.Plugins[i].start:l.Plugins[i].end]
	if sameContent(current, entry) {
		return l.text
	}
	return slices.Concat(l.text[:l.Plugins[i].start], l.indented(entry), l.text[l.Plugins[i].end:])
}

func (l *List) appended(entry []byte) []byte {
	end := l.Plugins[len(l.Plugins)-1].end
	return slices.Concat(l.text[:end], []byte(","), []byte(l.gap()), l.indented(entry), l.text[end:])
}

// gap returns the white space that precedes the last element.
func (l *List) gap() string {
	before := string(l.text[:l.Plugins[len(l.Plugins)-1].start])
	return before[len(strings.TrimRight(before, " \t\r\n")):]
}

// indented returns the entry in the style of the list. If the last element begins on a new line, the
// entry has that element's indentation. Otherwise the entry has one line.
func (l *List) indented(entry []byte) []byte {
	gap := l.gap()
	newline := strings.LastIndexByte(gap, '\n')
	var out bytes.Buffer
	if newline < 0 {
		if json.Compact(&out, entry) != nil {
			return entry
		}
		return out.Bytes()
	}
	indent := gap[newline+1:]
	unit := "  "
	if strings.HasPrefix(indent, "\t") {
		unit = "\t"
	}
	if json.Indent(&out, bytes.TrimSpace(entry), indent, unit) != nil {
		return entry
	}
	return out.Bytes()
}

// sameContent reports whether two JSON documents are equal, except for white space and the order of
// keys.
func sameContent(a, b []byte) bool {
	var left, right any
	return decode(a, &left) == nil && decode(b, &right) == nil && reflect.DeepEqual(left, right)
}

// decode decodes JSON. Numbers stay literals, so that none is rounded.
func decode(text []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return decoder.Decode(into)
}
