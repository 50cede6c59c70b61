// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
)

// style has a background of its own, because a page's colours are not those of the system,
// which are all that an image can ask for.
const style = `<style>
text { font: 13px system-ui, "Segoe UI", "Liberation Sans", Arial, sans-serif; fill: #1f2328 }
.heading { font-weight: 600 }
.label { text-anchor: end }
.page { fill: #ffffff }
.ours { fill: #0969da }
.theirs { fill: #bc4c00 }
.reference { fill: #8c959f }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 }
.page { fill: #0d1117 }
.ours { fill: #58a6ff }
.theirs { fill: #db6d28 }
.reference { fill: #6e7681 }
}
</style>
`

// drawing draws rows of 24 pixels, below a title and a legend of 64.
var drawing = template.Must(template.New("").Parse(`<!-- SPDX-License-Identifier: Apache-2.0 -->
<svg width="760" height="{{.Height}}" viewBox="0 0 760 {{.Height}}" xmlns="http://www.w3.org/2000/svg">
` + style + `<rect width="760" height="{{.Height}}" class="page"/>
<text x="16" y="28" class="heading">{{.Title}}</text>
{{range .Legend}}<rect x="{{.X}}" y="49" width="12" height="12" class="{{.Class}}"/>
<text x="{{.X}}" y="60" dx="18">{{.Name}}</text>
{{end}}{{range .Rows}}<g transform="translate(0,{{.Y}})">{{if .Heading}}<text x="16" y="12" class="heading">{{.Heading}}</text></g>
{{else}}<title>{{html .Name}}: {{.Text}}</title>
<text x="278" y="12" class="label">{{html .Label}}</text>
<rect x="286" width="{{.Length}}" height="16" class="{{.Kind}}"/>
<text x="294" y="12" dx="{{.Length}}">{{.Text}}</text>
</g>
{{end}}{{end}}</svg>
`))

// row is a heading or a bar.
type row struct {
	bar
	Heading   string
	Y, Length int // of the longest bar: 388 of 760 pixels
}

// kind is one of bars, with its name and its place in the legend.
type kind struct {
	Class, Name string
	X           int
}

var kinds = []kind{{"ours", "capture-cni", 16}, {"theirs", "Istio", 146}, {"reference", "for comparison", 276}}

// Kind returns the class of a bar.
func (b bar) Kind() string {
	switch {
	case strings.Contains(b.Label, "istio"):
		return "theirs"
	case strings.Contains(b.Label, "floor"), strings.Contains(b.Label, "empty"), b.Label == "nothing", strings.HasSuffix(b.Label, "ptp"):
		return "reference"
	}
	return "ours"
}

// save writes the drawing of bars, which are in the order of the page.
func (p plot) save(bars []bar) error {
	longest := slices.MaxFunc(bars, func(a, b bar) int { return cmp.Compare(a.value, b.value) })
	var rows []row
	add := func(r row) {
		r.Y = 80 + 24*len(rows)
		rows = append(rows, r)
	}
	for i, b := range bars {
		if b.group != "" && (i == 0 || bars[i-1].group != b.group) {
			add(row{Heading: b.group})
		}
		add(row{bar: b, Length: max(1, int(388*b.value/longest.value))})
	}
	legend := slices.DeleteFunc(slices.Clone(kinds), func(k kind) bool {
		return !slices.ContainsFunc(bars, func(b bar) bool { return b.Kind() == k.Class })
	})
	var text bytes.Buffer
	err := drawing.Execute(&text, map[string]any{"Title": p.title, "Height": 96 + 24*len(rows), "Legend": legend, "Rows": rows})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(directory, p.file), text.Bytes(), 0o644)
}
