// SPDX-License-Identifier: Apache-2.0

package conflist

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"

	"github.com/capture-cni/capture-cni/install/report"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const entry = `{"type":"capture-cni","kubeconfig":"/var/lib/capture-cni/kubeconfig","capabilities":{"io.kubernetes.cri.pod-annotations":true}}`

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func parse(t *testing.T, text []byte) *List {
	t.Helper()
	list, err := Parse(text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return list
}

func with(t *testing.T, text []byte) []byte {
	t.Helper()
	edited, err := parse(t, text).With([]byte(entry))
	if err != nil {
		t.Fatal(err)
	}
	return edited
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(read(t, path)), string(got)); diff != "" {
		t.Errorf("-golden +now:\n%s", diff)
	}
}

// TestLists inserts our entry into lists of real plugins, and removes it again.
func TestLists(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.conflist")
	if err != nil || len(files) < 9 {
		t.Fatalf("lists: %q, %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			original := read(t, file)
			once := with(t, original)
			golden(t, file+".golden", once)
			if twice := with(t, once); !bytes.Equal(twice, once) {
				t.Errorf("inserted twice:\n%s", twice)
			}
			if !parse(t, once).Has([]byte(entry)) || parse(t, original).Has([]byte(entry)) {
				t.Error("Has is wrong about the entry")
			}
			back, err := parse(t, once).Without()
			if err != nil || !bytes.Equal(back, original) {
				t.Errorf("removed (%v):\n%s", err, cmp.Diff(string(original), string(back)))
			}
			expectOnlyOurs(t, original, once)
		})
	}
}

// expectOnlyOurs wants libcni to find the original's plugins, and ours after them.
func expectOnlyOurs(t *testing.T, original, edited []byte) {
	t.Helper()
	var before, after map[string]any
	if err := errors.Join(json.Unmarshal(original, &before), json.Unmarshal(edited, &after)); err != nil {
		t.Fatal(err)
	}
	plugins := after["plugins"].([]any)
	after["plugins"] = plugins[:len(plugins)-1]
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the lists differ in more than our entry:\n%s", diff)
	}
	list, err := libcni.NetworkConfFromBytes(edited)
	if err != nil || list.Plugins[len(list.Plugins)-1].Network.Type != PluginType {
		t.Errorf("libcni does not find our entry at the end: %v", err)
	}
}

// TestRepair has misplaced, duplicate and outdated entries of ours.
func TestRepair(t *testing.T) {
	t.Parallel()
	const primary = `{"type":"bridge"}`
	list := func(plugins ...string) []byte {
		return []byte(`{"cniVersion":"1.0.0","name":"n","plugins":[` + strings.Join(plugins, ",") + `],"plugin":[{"type":"x"}]}`)
	}
	const old = `{"type":"capture-cni","kubeconfig":"/old"}`
	for name, test := range map[string]struct{ have, want []byte }{
		"first":                    {list(entry, primary), list(primary, entry)},
		"twice":                    {list(primary, entry, entry), list(primary, entry)},
		"twice, and first":         {list(entry, primary, old), list(primary, entry)},
		"three times, with others": {list(entry, primary, old, `{"type":"portmap"}`, old), list(primary, entry, `{"type":"portmap"}`)},
		"old content":              {list(primary, old), list(primary, entry)},
		"between others":           {list(primary, entry, `{"type":"portmap"}`), list(primary, entry, `{"type":"portmap"}`)},
		"before istio-cni": {
			list(primary, entry, `{"type":"istio-cni"}`, `{"type":"portmap"}`),
			list(primary, `{"type":"istio-cni"}`, `{"type":"portmap"}`, entry),
		},
		"after istio-cni": {list(primary, `{"type":"istio-cni"}`, entry), list(primary, `{"type":"istio-cni"}`, entry)},
		"same content, other form": {
			list(primary, `{ "capabilities" : {"io.kubernetes.cri.pod-annotations":true}, "kubeconfig":"/var/lib/capture-cni/kubeconfig", "type":"capture-cni"}`),
			list(primary, `{ "capabilities" : {"io.kubernetes.cri.pod-annotations":true}, "kubeconfig":"/var/lib/capture-cni/kubeconfig", "type":"capture-cni"}`),
		},
	} {
		if got := with(t, test.have); !bytes.Equal(got, test.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, test.want)
		}
		without, err := parse(t, test.have).Without()
		if err != nil || parse(t, without).HasOurs() || bytes.Contains(without, []byte(PluginType)) {
			t.Errorf("%s: without ours: %s (%v)", name, without, err)
		}
	}
	for _, text := range []string{string(list(entry)), string(list(entry, old))} {
		if _, err := parse(t, []byte(text)).With([]byte(entry)); !errors.Is(err, errNoInterfacePlugin) {
			t.Errorf("%s: got %v", text, err)
		}
		if _, err := parse(t, []byte(text)).Without(); !errors.Is(err, errNoInterfacePlugin) {
			t.Errorf("%s: got %v", text, err)
		}
		if _, err := embed(parse(t, []byte(text)), "", []byte(entry)); !errors.Is(err, errNoInterfacePlugin) {
			t.Errorf("%s: got %v", text, err)
		}
	}
}

// TestBroken reads files that not every runtime loads.
func TestBroken(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "{", "null", "[]", `"x"`, "{}", `{"name":"n"`, `{"name":5,"plugins":[]}`, `{"name":"n","plugins":[]}`, `{"name":"n","plugins":{}}`,
		`{"name":"n","plugins":[{"type":"a"}]} x`, `{"name":"n","plugins":[5]}`, `{"name":"n","plugins":[{}]}`,
		`{"name":"n","plugins":[{"type":"a"}],"plugins":[{"type":"b"},{"type":"c"}]}`,
		`{"name":"n","plugins":5,"plugins":[{"type":"a"}]}`,
	} {
		if list, err := Parse([]byte(text)); err == nil && list.HasOthers() {
			t.Errorf("%s was read as %+v", text, list)
		}
	}
}

func TestFromConf(t *testing.T) {
	t.Parallel()
	list, err := fromConf(read(t, "testdata/plain.conf"))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/plain.conf.golden", with(t, list))
	if got := parse(t, list); got.Name != "mynet" || got.CNIVersion != "0.3.1" || len(got.Plugins) != 1 || got.HasOurs() {
		t.Errorf("got %+v", got)
	}
	if _, err := fromConf([]byte("{")); err == nil {
		t.Error("a truncated file was read")
	}
}

// TestEmbed leaves out istio-cni alone, unless ambient pods need it, and names the source.
func TestEmbed(t *testing.T) {
	t.Parallel()
	const before, after = `{"type":"calico"},`, `,{"type":"portmap"},{"type":"linkerd-cni"}`
	expectEmbedded(t, before+`{"type":"istio-cni"}`+after, []string{"calico", "portmap", "linkerd-cni", PluginType})
	expectEmbedded(t, before+`{"type":"istio-cni","ambient_enabled":false}`+after, []string{"calico", "portmap", "linkerd-cni", PluginType})
	expectEmbedded(t, before+`{"type":"istio-cni","ambient_enabled":true}`+after, []string{"calico", "istio-cni", "portmap", "linkerd-cni", PluginType})
	expectEmbedded(t, `{"type":"istio-cni"}`, []string{"istio-cni", PluginType}) // a list keeps one plugin
}

func expectEmbedded(t *testing.T, plugins string, want []string) {
	t.Helper()
	text := []byte(`{"name":"n","cniVersion":"0.3.1","plugins":[` + plugins + `]}`)
	source := source("10-n.conflist", text)
	got, err := embed(parse(t, text), source, []byte(entry))
	if err != nil {
		t.Fatal(err)
	}
	if found := sourceOf(got); found != source || !strings.HasPrefix(found, "10-n.conflist sha256:") || sourceOf(text) != "" {
		t.Errorf("the source is %q, want %q", found, source)
	}
	var types []string
	for _, plugin := range parse(t, got).Plugins {
		types = append(types, plugin.Type)
	}
	if !slices.Equal(types, want) {
		t.Errorf("with %s: got %q, want %q", plugins, types, want)
	}
}

// TestOtherMesh recognises plugins of other meshes by their type.
func TestOtherMesh(t *testing.T) {
	t.Parallel()
	for pluginType, want := range map[string]struct{ other, istio bool }{
		"istio-cni": {true, true}, "v2-5-istio-cni": {true, true}, "linkerd-cni": {true, false}, "kuma-cni": {true, false}, "consul-cni": {true, false},
		"calico": {}, "capture-cni": {}, "not-istio-cnis": {}, "istio": {},
	} {
		plugin := Plugin{Type: pluginType}
		if plugin.OtherMesh() != want.other || plugin.IsIstioCNI() != want.istio {
			t.Errorf("%s: another mesh's: %v, istio-cni: %v", pluginType, plugin.OtherMesh(), plugin.IsIstioCNI())
		}
	}
	for entry, want := range map[string]bool{
		`{"type":"istio-cni","ambient_enabled":true}`:   true,
		`{"type":"istio-cni","ambient_enabled":false}`:  false,
		`{"type":"istio-cni"}`:                          false,
		`{"type":"istio-cni","ambient_enabled":"true"}`: false, // with which istio-cni fails
		`{"type":"calico","ambient_enabled":true}`:      false,
	} {
		list := parse(t, []byte(`{"name":"n","cniVersion":"0.3.1","plugins":[{"type":"ptp"},`+entry+`]}`))
		if got := list.Plugins[1].Ambient; got != want {
			t.Errorf("%s: ambient is %v", entry, got)
		}
	}
}

// TestStaysBeforeOtherMeshes leaves our entry where it is when the installer of another mesh, which wants its
// entry to be the last one, has moved it behind ours. Otherwise, both would rewrite the list for ever.
func TestStaysBeforeOtherMeshes(t *testing.T) {
	t.Parallel()
	for _, other := range report.MeshPlugins() {
		list := `{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"bridge"},` + entry + `,{"type":"` + other + `"}]}`
		if got := with(t, []byte(list)); string(got) != list {
			t.Errorf("%s: got\n%s", other, got)
		}
	}
}

// FuzzEdit inserts into any list that libcni loads, and removes again.
func FuzzEdit(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.conflist*")
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	f.Add([]byte(`{"plugins":[{"type":"a","plugins":[{"type":"capture-cni"}]}],"name":"\"plugins\":[{"}`))
	f.Add([]byte(`{"plugins":[{"type":"a"}],"name":"n","cniVersion":"1.0.0","loadOnlyInlinedPlugins":true}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, err := Parse(text)
		if err != nil {
			return
		}
		edited, err := list.With([]byte(entry))
		if err != nil {
			return
		}
		if !json.Valid(edited) {
			t.Fatalf("%q became %q", text, edited)
		}
		again := parse(t, edited)
		if ours(again) != 1 || !again.Has([]byte(entry)) || len(again.Plugins)-1 != len(list.Plugins)-ours(list) {
			t.Fatalf("%q became %q", text, edited)
		}
		if conf, err := libcni.NetworkConfFromBytes(text); err != nil || again.Name != conf.Name || again.CNIVersion != conf.CNIVersion || again.LoadOnlyInlinedPlugins != conf.LoadOnlyInlinedPlugins {
			t.Fatalf("%q became %+v, %v", text, again, err)
		}
		back, err := again.Without()
		if err != nil {
			t.Fatal(err)
		}
		if !list.HasOurs() && !bytes.Equal(back, text) {
			t.Errorf("%q came back as %q", text, back)
		}
	})
}

func ours(l *List) int { return len(slices.DeleteFunc(slices.Clone(l.Plugins), isOther)) }
