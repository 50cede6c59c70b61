// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

func input(t *testing.T, text string) Input {
	t.Helper()
	in, err := Read([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func TestRead(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "null", "[]", `"x"`, "{", `{"a":1}}`, "\x00"} {
		if _, err := Read([]byte(text)); err == nil || strings.Contains(err.Error(), "got null") != (text == "null") {
			t.Errorf("%q was read, or its fault is another one: %v", text, err)
		}
	}
}

// TestLenient reads values of the wrong type as absent.
func TestLenient(t *testing.T) {
	t.Parallel()
	in := input(t, `{"cniVersion": 1, "runtimeConfig": "x", "excludeNamespaces": "shop", "logLevel": 5, "status": {}, "prevResult": null}`)
	if v := in.CNIVersion(); v != "" {
		t.Errorf("cniVersion %q", v)
	}
	if in.PodAnnotations() != nil {
		t.Error("a string was read as annotations")
	}
	if in.ExcludesNamespace("shop") || in.StrictStatus() || in.LogLevel() != slog.LevelInfo || in.PrevResult() != nil {
		t.Error("a value of the wrong form has an effect")
	}

	in = input(t, `{"cniVersion": "1.0.0", "excludeNamespaces": ["shop"], "logLevel": "debug", "status": "strict",
		"prevResult":  {"b": 1,  "a": 1e3}, "runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"k": "v"}, "mac": 5}}`)
	if annotations := in.PodAnnotations(); annotations["k"] != "v" || in.CNIVersion() != "1.0.0" {
		t.Errorf("annotations %v", annotations)
	}
	if !in.ExcludesNamespace("shop") || in.ExcludesNamespace("other") || !in.StrictStatus() || in.LogLevel() != slog.LevelDebug {
		t.Error("a good value has no effect")
	}
	if got := string(in.PrevResult()); got != `{"b": 1,  "a": 1e3}` {
		t.Errorf("prevResult became %s", got)
	}
	for _, annotations := range []string{"null", `{"k": 1}`, "[]"} {
		in := input(t, fmt.Sprintf(`{"runtimeConfig": {"io.kubernetes.cri.pod-annotations": %s}}`, annotations))
		if in.PodAnnotations() != nil {
			t.Errorf("annotations %s were accepted", annotations)
		}
	}
}

// TestKeys sets every key to good values and bad ones.
func TestKeys(t *testing.T) {
	t.Parallel()
	const port, id = "a port number from 1 to 65535", "a numeric id from 1 to"
	tests := map[string]struct {
		good []string
		bad  map[string]string // value → part of the error
	}{
		"kubeconfig":                      {[]string{`"/a/kubeconfig"`}, map[string]string{`"a"`: "an absolute path", `"kubeconfig"`: "an absolute path", `"/a/b"`: "ends in /kubeconfig", `"/a/../kubeconfig"`: "ends in /kubeconfig", `5`: "an absolute path", `null`: "an absolute path", `""`: "an absolute path"}},
		"lookupTimeout":                   {[]string{`"1s"`, `"2m"`, `"1500ms"`}, map[string]string{`"999ms"`: `from "1s" to "2m"`, `"3m"`: "a duration", `30`: "a duration", `"x"`: "a duration"}},
		"backend":                         {[]string{`"nftables"`, `"iptables"`, `"iptables-nft"`, `"iptables-legacy"`}, map[string]string{`"nft"`: `one of ["nftables" "iptables" "iptables-nft" "iptables-legacy"]`, `""`: "one of"}},
		"excludeNamespaces":               {[]string{`[]`, `["a","kube-*"]`}, map[string]string{`"a"`: "a list", `["a",5," "]`: "element 2: expected a namespace, or a prefix", `["*"]`: "a prefix such as openshift-*", `["a**"]`: "* only at its end", `["a*b"]`: "* only at its end", `null`: "a list"}},
		"meshes":                          {[]string{`["linkerd"]`, `["istio","linkerd","capture-cni"]`}, map[string]string{`[]`: "at least one", `["osm"]`: "element 0: expected one of", `"istio"`: "a list", `null`: "a list"}},
		"ipv6":                            {[]string{`"mesh"`, `"always"`, `"never"`}, map[string]string{`"Mesh"`: `one of ["mesh" "always" "never"]`, `true`: "one of"}},
		"sharedProxyUID":                  {[]string{`"warn"`, `"refuse"`}, map[string]string{`"allow"`: `one of ["warn" "refuse"]`}},
		"sandboxedRuntimeClasses":         {[]string{`["kata", "kata-*", "*"]`}, map[string]string{`[""]`: "element 0: expected a name", `["a", "a*b"]`: "element 1: expected a name, or a prefix such as kata-* with * only at its end", `["a**"]`: "with * only at its end"}},
		"sharedKernelRuntimeClasses":      {[]string{`["kata-fake", "nvidia*"]`}, map[string]string{`[" a"]`: "element 0: expected a name", `["*a"]`: "with * only at its end"}},
		"fenceLimit":                      {[]string{`[]`, `["*"]`, `["out:udp:53@10.96.0.10/32", "in:tcp:0-65535@::/0"]`}, map[string]string{`"*"`: "a list", `["in:udp:53"]`: `element 0: empty element: expected a range`, `[53]`: "an exception in quotes", `["out:icmp:1@::/0"]`: "expected DIRECTION:PROTOCOL:PORTS@RANGE", `["out:udp:9-8@::/0"]`: "the lower port first"}},
		"status":                          {[]string{`"lenient"`, `"strict"`}, map[string]string{`"on"`: "one of"}},
		"agentSocket":                     {[]string{`"/a/agent.sock"`, `""`}, map[string]string{`"a"`: "an absolute path", `"/a/b"`: `ends in /agent.sock, without ., .. or //, or ""`, `5`: "an absolute path", `null`: "an absolute path"}},
		"logLevel":                        {[]string{`"debug"`, `"error"`}, map[string]string{`"INFO"`: "one of", `"trace"`: "one of"}},
		"mesh":                            {[]string{`{}`}, map[string]string{`null`: "an object", `[]`: "an object", `"x"`: "an object"}},
		"mesh.outboundPort":               {[]string{`1`, `65535`}, map[string]string{`0`: port, `65536`: port, `"15001"`: port, `-1`: port, `1.5`: port}},
		"mesh.inboundPort":                {[]string{`15006`}, map[string]string{`null`: port}},
		"mesh.tunnelPort":                 {[]string{`15008`}, map[string]string{`[]`: port}},
		"mesh.dnsPort":                    {[]string{`15053`}, map[string]string{`70000`: port}},
		"mesh.proxyUID":                   {[]string{`1337`, `4294967295`}, map[string]string{`0`: id, `4294967296`: id, `-1`: id}},
		"mesh.proxyGID":                   {[]string{`1337`}, map[string]string{`0`: id}},
		"mesh.excludeOutboundIPRanges":    {[]string{`["10.0.0.0/8","2001:db8::/32"]`}, map[string]string{`["10.0.0.1"]`: "write 10.0.0.1/32", `[5]`: "element 0: expected a range", `"10.0.0.0/8"`: "a list"}},
		"mesh.excludeOutboundPorts":       {[]string{`[1,2]`}, map[string]string{`[0,"x"]`: "element 1: expected " + port}},
		"mesh.excludeInboundPorts":        {[]string{`[]`}, map[string]string{`1`: "a list"}},
		"mesh.outboundOwnerGroups":        {[]string{`[0, 5]`}, map[string]string{`["java"]`: "a numeric id"}},
		"mesh.outboundOwnerGroupsExclude": {[]string{`[5]`}, map[string]string{`[-1]`: "a numeric id"}},
		"mesh.loopbackCIDR":               {[]string{`"127.0.0.0/8"`, `"127.0.0.1/32"`}, map[string]string{`"x"`: "expected a range such as", `"10.0.0.0/8"`: "within 127.0.0.0/8", `"::1/128"`: "within 127.0.0.0/8", `"0.0.0.0/0"`: "within 127.0.0.0/8", `"126.0.0.0/7"`: "within 127.0.0.0/8"}},
	}
	var documented []string
	for name := range defaults("", Keys(new(NetConf))) {
		documented = append(documented, name)
	}
	for name := range tests {
		documented = slices.DeleteFunc(documented, func(d string) bool { return d == name })
	}
	if len(documented) > 0 {
		t.Errorf("keys without a test: %q", documented)
	}
	for name, test := range tests {
		for _, value := range test.good {
			if _, warnings, err := input(t, entry(name, value)).NetConf(); err != nil || len(warnings) > 0 {
				t.Errorf("%s = %s: %v %q", name, value, err, warnings)
			}
		}
		for value, want := range test.bad {
			_, _, err := input(t, entry(name, value)).NetConf()
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), fmt.Sprintf("%q is %s", name, value)) {
				t.Errorf("%s = %s: got error %v, want one with %q", name, value, err, want)
			}
		}
	}
}

// TestAccepts has a key accept what its reader does. An object has no reader of its own.
func TestAccepts(t *testing.T) {
	t.Parallel()
	for _, key := range Keys(new(NetConf)) {
		if got := key.Accepts([]byte(`"always"`)); got != (key.Name == "ipv6") {
			t.Errorf("%s accepts the mode of IPv6: %v", key.Name, got)
		}
	}
}

// TestMeshes reads the meshes of an entry. A list that fails each pod of a mesh is all meshes.
func TestMeshes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]MeshName{
		`{}`: DefaultSettings().Meshes, `{"meshes": ["linkerd"]}`: {"linkerd"}, `{"meshes": ["osm"]}`: Meshes(), `{"meshes": null}`: Meshes(),
	} {
		if got := input(t, text).Meshes(); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}

// TestLimits has values and lists of the longest length that is not cut, and one more.
func TestLimits(t *testing.T) {
	t.Parallel()
	longest, lines := strings.Repeat("x", 128), []string{"1", "2", "3", "4", "5"}
	if Shortened(longest) != longest || Shortened(longest+"x") != longest+"…" {
		t.Errorf("got %q and %q", Shortened(longest), Shortened(longest+"x"))
	}
	if got, more := Few(lines, "left"), Few(append(lines, "6"), "left"); !slices.Equal(got, lines) || !slices.Equal(more, append(lines, "1 more left")) {
		t.Errorf("got %q and %q", got, more)
	}
}

// TestFaultsAreBounded keeps messages short for any entry: with Multus, a
// namespace's user may write it.
func TestFaultsAreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200_000)
	var keys strings.Builder
	for i := range 2_000 {
		fmt.Fprintf(&keys, `, "unknown%04d%s": 1`, i, strings.Repeat("x", 100))
	}
	entry := fmt.Sprintf(`{"ipv6": %q, "excludeNamespaces": [%s 1], "mesh": %q, "backend": [%s 1], "kubeconfig": "%s", "sandboxedRuntimeClasses": [%q, 5]%s, %q: 1}`,
		long, strings.Repeat("5,", 5_000), long, strings.Repeat("5,", 5_000), long, long, keys.String(), long)
	_, warnings, err := input(t, entry).NetConf()
	if err == nil || len(err.Error()) > 4<<10 || !strings.Contains(err.Error(), "element 0: expected a name") || !strings.Contains(err.Error(), "4996 more") {
		t.Errorf("an error of %d bytes: %.500v", len(fmt.Sprint(err)), err)
	}
	if all := strings.Join(warnings, "\n"); len(all) > 4<<10 || !strings.Contains(all, "unknown0000") || !strings.Contains(all, "1996 more") {
		t.Errorf("%d warnings of %d bytes: %.500s", len(warnings), len(all), all)
	}
}

// entry returns a configuration with one key, which may be nested: "mesh.dnsPort".
func entry(name, value string) string {
	if outer, inner, nested := strings.Cut(name, "."); nested {
		return fmt.Sprintf(`{%q: {%q: %s}}`, outer, inner, value)
	}
	return fmt.Sprintf(`{%q: %s}`, name, value)
}

// defaults returns the documented defaults by the keys' full names.
func defaults(prefix string, keys []Key) map[string]string {
	all := map[string]string{}
	for _, key := range keys {
		all[prefix+key.Name] = key.Default
		maps.Copy(all, defaults(prefix+key.Name+".", key.Keys))
	}
	return all
}

// TestDefaults sets each key to its documented default: the result equals Default.
func TestDefaults(t *testing.T) {
	t.Parallel()
	want := fmt.Sprintf("%+v", Default())
	for name, value := range defaults("", Keys(new(NetConf))) {
		quoted := value
		if name == "kubeconfig" || value[0] != '[' && strings.Trim(value, "0123456789{}") != "" {
			quoted = fmt.Sprintf("%q", value)
		}
		conf, _, err := input(t, entry(name, quoted)).NetConf()
		if got := fmt.Sprintf("%+v", conf); err != nil || got != want {
			t.Errorf("%s = %s: %v\ngot  %s\nwant %s", name, quoted, err, got, want)
		}
	}
}

func TestAllFaultsAndWarningsAtOnce(t *testing.T) {
	t.Parallel()
	conf, warnings, err := input(t, `{"cniVersion":"1.0.0","name":"n","type":"capture-cni","capabilities":{},"cni.dev/x":1,"ipam":{},
		"lookupTimout":"5s","mesh":{"inboundport":1},"kubeconfig":"/k/kubeconfig","lookupTimeout":"5s"}`).NetConf()
	if err != nil || conf.LookupTimeout != 5*time.Second || conf.Kubeconfig != "/k/kubeconfig" {
		t.Errorf("got %+v, %v", conf, err)
	}
	if len(warnings) != 2 || !strings.Contains(warnings[0], `"lookupTimout"`) && !strings.Contains(warnings[1], `"lookupTimout"`) {
		t.Errorf("warnings %q", warnings)
	}
	_, _, err = input(t, `{"kubeconfig":"x","ipv6":1,"mesh":{"inboundPort":0,"proxyUID":0}}`).NetConf()
	faults, ok := err.(Faults)
	if !ok || len(faults) != 4 {
		t.Errorf("got %v", err)
	}
}

func FuzzNetConf(f *testing.F) {
	f.Add([]byte(`{"mesh":{"excludeOutboundIPRanges":["10.0.0.0/8"],"loopbackCIDR":"127.0.0.0/8"},"ipv6":"always"}`))
	f.Add([]byte(`{"kubeconfig":5,"lookupTimeout":"1s","excludeNamespaces":[1,null],"mesh":[]}`))
	f.Add([]byte(`{"runtimeConfig":{"io.kubernetes.cri.pod-annotations":{"a":"b"}},"prevResult":{}}`))
	f.Fuzz(func(t *testing.T, stdin []byte) {
		in, err := Read(stdin)
		if err != nil {
			return
		}
		in.PodAnnotations()
		in.ExcludesNamespace("shop")
		conf, _, err := in.NetConf()
		if err != nil {
			if _, ok := err.(Faults); !ok {
				t.Fatalf("an error of type %T: %v", err, err)
			}
			return
		}
		mesh := conf.Capture.Mesh
		if mesh.OutboundPort == 0 || mesh.ProxyUID == 0 || mesh.ProxyGID == 0 || conf.LookupTimeout < time.Second || !mesh.LoopbackCIDR.Addr().IsLoopback() {
			t.Errorf("accepted: %+v", conf)
		}
	})
}
