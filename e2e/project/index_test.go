// SPDX-License-Identifier: Apache-2.0

package project

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// indexSections are the sections of llms.txt (https://llmstxt.org), each with the documents of
// its paths. A document is in the first one that matches it.
var indexSections = []struct{ title, paths string }{
	{"Start", `^(README|deploy/README)\.md$`},
	{"Guides", `^deploy/(guides/.*|runbook)\.md$`},
	{"Reference", `^deploy/reference/.*\.md$`},
	{"Maintainers", `^([A-Z]+|e2e/.*)\.md$`},
	{"Optional", `.*`}, // which the form lets a reader with little room leave out
}

// TestIndexTables compares llms.txt, the index of the documents for tools, with the documents:
// each is in it once, with its title and its first sentence.
func TestIndexTables(t *testing.T) {
	want := index(t)
	got := read(t, "llms.txt")
	if got == want {
		return
	}
	if !*update {
		t.Error("llms.txt differs from the documents: run make golden")
		return
	}
	if err := os.WriteFile(filepath.Join(root, "llms.txt"), []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// index returns the index of the documents.
func index(t *testing.T) string {
	t.Helper()
	sections := make([]string, len(indexSections))
	count := 0
	walk(t, "", func(path string) {
		if filepath.Ext(path) != ".md" {
			return
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		name = filepath.ToSlash(name)
		in := slices.IndexFunc(indexSections, func(section struct{ title, paths string }) bool {
			return regexp.MustCompile(section.paths).MatchString(name) && (name != "CHANGELOG.md" || section.title == "Optional")
		})
		title, sentence := summary(read(t, name))
		if title == "" {
			t.Errorf("%s has no title", name)
		}
		entry := "- [" + title + "](" + name + ")"
		if sentence != "" {
			entry += ": " + sentence
		}
		sections[in] += entry + "\n"
		count++
	})
	if count < 20 {
		t.Errorf("%d documents were found", count)
	}
	text := "# capture-cni\n\n> " + only(t, `(?m)^description: (.+)$`, read(t, "deploy/chart/Chart.yaml")) + "\n"
	for i, section := range indexSections {
		if sections[i] == "" {
			t.Errorf("section %s has no documents", section.title)
		}
		text += "\n## " + section.title + "\n\n" + sections[i]
	}
	return text
}

var (
	firstParagraph = regexp.MustCompile(`(?s)^# ([^\n]+)\n+([A-Z\[` + "`" + `].*?)(?:\n\n|\n$|$)`)
	firstSentence  = regexp.MustCompile(`^(.+?)[.:]?(?:$|\. )`)
	markdownLink   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// summary returns a document's title and the sentence with which it begins, without links.
func summary(document string) (title, sentence string) {
	title, _, _ = strings.Cut(strings.TrimPrefix(document, "# "), "\n")
	if match := firstParagraph.FindStringSubmatch(document); match != nil {
		plain := markdownLink.ReplaceAllString(strings.ReplaceAll(match[2], "\n", " "), "$1")
		if begins := firstSentence.FindStringSubmatch(plain); begins != nil {
			sentence = begins[1]
		}
	}
	return title, sentence
}
