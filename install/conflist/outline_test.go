// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOutline(t *testing.T) {
	t.Parallel()
	const ours = `{"type": "capture-cni", "password": "x"}`
	for text, want := range map[string]Outline{
		`{"cniVersion": "1.0.0", "name": "net", "disableCheck": true, "secret": "x", "plugins": [
			{"type": "bridge", "capabilities": {"portMappings": true, "bandwidth": true}, "mtu": 1}, ` + ours + `]}`: {
			Name: "net", CNIVersion: "1.0.0", DisableCheck: true,
			Plugins: []PluginOutline{{Type: "bridge", Capabilities: []string{"bandwidth", "portMappings"}}, {Type: "capture-cni", Own: json.RawMessage(ours)}},
		},
		`{"cniVersion": "0.3.1", "name": "old", "type": "bridge", "token": "x"}`:                             {Name: "old", CNIVersion: "0.3.1", Plugins: []PluginOutline{{Type: "bridge"}}},
		`{"name": "` + strings.Repeat("n", maxName+1) + `", "type": "` + strings.Repeat("t", maxName) + `"}`: {Name: notShown, Plugins: []PluginOutline{{Type: strings.Repeat("t", maxName)}}},
		`{"name": "pass = x", "plugins": [{"type": "a b"}, 5, {}]}`: {
			Name: notShown, Plugins: []PluginOutline{{Type: notShown}, {}, {}},
			Fault: "reading a configuration list: not of the expected form: a JSON number where another type is expected",
		},
		`{"name": "net", "plugins": []}`: {
			Name: "net", Fault: "reading a configuration list: libcni can't load it: expected a name, versions as texts, true or false for disableCheck, disableGC and loadOnlyInlinedPlugins, and one or more plugins, each with a type",
		},
	} {
		got, err := OutlineOf([]byte(text))
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", text, err, diff)
		}
	}
}

// TestNoOutline wants errors that quote none of the text.
func TestNoOutline(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``:                          "not JSON at byte 0",
		`password = "hunter2"`:      "not JSON at byte 1",
		`{"password": "hunter2"`:    "not JSON at byte 22",
		`["hunter2"]`:               "not of the expected form: a JSON array where another type is expected",
		`"hunter2"`:                 "not of the expected form: a JSON string where another type is expected",
		`12345`:                     "not of the expected form: a JSON number where another type is expected",
		`{"plugins": "hunter2"}`:    "plugins is not a list",
		`{"plugins": {"psk": "x"}}`: "plugins is not a list",
	} {
		if _, err := OutlineOf([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestOutlineIsBounded counts the plugins and capabilities beyond the limits.
func TestOutlineIsBounded(t *testing.T) {
	t.Parallel()
	var capabilities []string
	for i := range maxCapabilities + 2 {
		capabilities = append(capabilities, fmt.Sprintf(`"c%03d": true`, i))
	}
	plugin := `{"type": "x", "capabilities": {` + strings.Join(capabilities, ",") + `}}`
	got, err := OutlineOf([]byte(`{"name": "net", "cniVersion": "1.0.0", "plugins": [` + strings.Join(slices.Repeat([]string{plugin}, maxPlugins+3), ",") + `]}`))
	if err != nil || len(got.Plugins) != maxPlugins || got.LeftOut != 3 {
		t.Fatalf("%d plugins, %d left out, %v", len(got.Plugins), got.LeftOut, err)
	}
	if p := got.Plugins[0]; len(p.Capabilities) != maxCapabilities || p.LeftOut != 2 {
		t.Errorf("%d capabilities, %d left out", len(p.Capabilities), p.LeftOut)
	}
}

// FuzzOutline wants nothing of the text in an outline or an error but names.
func FuzzOutline(f *testing.F) {
	for _, text := range []string{
		`{"name": "net", "plugins": [{"type": "x", "capabilities": {"a": 1}}]}`, `{"type": "x"}`, "{", `{"plugins": 1}`,
		`{"name": "net", "cniVersions": ["=1"], "plugins": [{"type": "x"}]}`, `{"name": "n", "disableCheck": "=1", "plugins": [{"type": "x"}]}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		outline, err := OutlineOf(text)
		if err != nil && strings.ContainsAny(err.Error(), "=\"{}[]\x00\n") {
			t.Errorf("%q: %v", text, err)
		}
		shown := []string{outline.Name, outline.CNIVersion}
		for _, p := range outline.Plugins {
			shown = append(shown, append(p.Capabilities, p.Type)...)
		}
		for _, name := range shown {
			if Shown(name) != name && name != notShown {
				t.Errorf("%q shows %q", text, name)
			}
		}
		if strings.ContainsAny(outline.Fault, "=\"{}[]\x00\n") {
			t.Errorf("%q: %s", text, outline.Fault)
		}
	})
}
