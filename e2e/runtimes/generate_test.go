// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

func cutLink(content string) (target string, isLink bool) { return strings.CutPrefix(content, "->") }

// list is a list of plugins, conf a plain configuration.
func list(network string, types ...string) string {
	plugins := make([]string, len(types))
	for i, name := range types {
		plugins[i] = fmt.Sprintf("{\"type\": %q, \"n\": 12345678901234567890}", name)
	}
	return fmt.Sprintf("{\n\t\"cniVersion\": \"1.0.0\",\n\t\"name\": %q,\n\t\"plugins\": [%s]\n}\n", network, strings.Join(plugins, ", "))
}

func conf(network, kind string) string {
	return fmt.Sprintf("{\"cniVersion\": \"0.4.0\", \"name\": %q, \"type\": %q}\n", network, kind)
}

// directory is one that the generator made, and what its runtime is configured with.
type directory struct {
	files    map[string]string // a value that starts with "->" is a link, one that starts with "!" has no permission
	programs []string          // names, with a colon and what is wrong with one
	most     int               // lists that containerd loads, but for the first
	network  string            // that CRI-O uses
}

// program answers VERSION as a plugin does: CRI-O calls each plugin of a list.
const program = `#!/bin/sh
echo '{"cniVersion":"1.0.0","supportedVersions":["0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}'
`

// wrong is what can be wrong with a program, and its text. The agent can't see the hidden ones.
var (
	wrong  = map[string]string{"empty": "", "no form": "echo\n", "no permission": program, "elsewhere": program}
	hidden = map[string]string{"fails": "#!/bin/sh\nexit 1\n", "old": "#!/bin/sh\necho '{\"cniVersion\":\"0.3.1\",\"supportedVersions\":[\"0.3.0\",\"0.3.1\"]}'\n"}
)

var primaries = []string{"ptp", "calico", "cilium-cni", "portmap"}

// generate makes a directory as owners, their accidents and their installers leave them.
func generate(r *rand.Rand) directory {
	d := directory{files: map[string]string{}}
	stems, ends := []string{"00-first", "05-a", "10-b", "10-c", "99-z"}, []string{".conflist", ".conflist", ".conflist", ".conf", ".json", ".conf.bak", ".conflist.tmp", ""}
	for i := range 1 + r.IntN(4) {
		network := fmt.Sprintf("net%d", i)
		name := stems[r.IntN(len(stems))] + ends[r.IntN(len(ends))]
		d.files[name] = content(r, network, strings.HasSuffix(name, ".conflist"))
		if r.IntN(6) == 0 {
			d.files[network+"/50-more.conf"] = pick(r, `{"type": "portmap"}`, `{"type": "gone"}`, `{`, `{}`)
		}
		if r.IntN(12) == 0 {
			d.files[network+"/50-more.txt"] = "{"
		}
	}
	if r.IntN(10) == 0 {
		d.files["20-directory.conflist/file"] = "{"
	}
	for _, name := range primaries {
		switch r.IntN(8) {
		case 0:
		case 1:
			d.programs = append(d.programs, name+":"+pick(r, "empty", "no form", "no permission", "fails", "old", "elsewhere", "elsewhere"))
		default:
			d.programs = append(d.programs, name)
		}
	}
	d.programs = append(d.programs, pick(r, ours...))
	if r.IntN(5) == 0 {
		d.network = pick(r, "net0", "net1", "net2", "none")
	}
	if r.IntN(5) == 0 {
		d.most = pick(r, -1, 1, 2)
	}
	return d
}

// ours is what becomes of our program, which the agent puts into its own directory.
var ours = append(slices.Repeat([]string{"capture-cni"}, 12), "another", "capture-cni:empty", "capture-cni:no permission", "capture-cni:fails")

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func content(r *rand.Rand, network string, isList bool) string {
	text := list(network, primaries[r.IntN(3)])
	switch {
	case !isList:
		text = conf(network, primaries[r.IntN(3)])
	case r.IntN(2) == 0:
		text = list(network, primaries[r.IntN(3)], "portmap")
	}
	switch r.IntN(21) {
	case 0:
		return ""
	case 1:
		return text[:len(text)/2]
	case 2:
		return "[]"
	case 3:
		return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": %q, "plugins": []}`, network)
	case 4:
		return fmt.Sprintf(`{"cniVersion": "1.0.0", "name": %q}`, network)
	case 5:
		return strings.Replace(text, `"type"`, `"kind"`, 1)
	case 6:
		return strings.Replace(text, `"name"`, `"nom"`, 1)
	case 7:
		return list(network, "loopback")
	case 8:
		return strings.Replace(text, `"name"`, `"loadOnlyInlinedPlugins": true, "name"`, 1)
	case 9:
		return pick(r, "->../outside", "->/none", "->none", "->.", "->10-b.conflist", "->05-a.conflist", "->/proc/self/mem")
	case 10:
		return conf(network, "ptp") // of the other form, in half the cases
	case 11:
		return strings.Replace(text, `"1.0.0"`, `"0.2.0"`, 1)
	case 12:
		return "!" + text
	}
	return text
}
