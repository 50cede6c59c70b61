// SPDX-License-Identifier: Apache-2.0

// Package guides reads the commands of the operators' guides, so that tests check and run
// them as an operator types them.
package guides

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Block is a fenced block of a guide, or a manifest next to the guides.
type Block struct {
	Guide    string // its path below deploy, as guides/install.md
	Section  string // the heading that it is under
	Language string
	Text     string
}

// Command is one command of a block in the language sh.
type Command struct {
	Guide, Section string
	Text           string // of several lines, where a quote or a here-document goes on
}

func (c Command) String() string {
	return fmt.Sprintf("%s, section %q: %s", c.Guide, c.Section, c.Text)
}

// Blocks returns the fenced blocks of all guides, and the manifests next to them; project is
// the project's directory.
func Blocks(project string) (blocks []Block, err error) {
	deploy := filepath.Join(project, "deploy")
	paths, err := filepath.Glob(filepath.Join(deploy, "guides", "*"))
	if err != nil {
		return nil, err
	}
	for _, path := range append(paths, filepath.Join(deploy, "README.md"), filepath.Join(deploy, "runbook.md"), filepath.Join(project, "README.md")) {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		guide, err := filepath.Rel(deploy, path)
		if err != nil {
			return nil, err
		}
		blocks = append(blocks, parse(guide, string(text))...)
	}
	return blocks, nil
}

func parse(guide, text string) (blocks []Block) {
	if filepath.Ext(guide) == ".yaml" {
		return []Block{{Guide: guide, Language: "yaml", Text: text}}
	}
	section, open := "", false
	for line := range strings.Lines(text) {
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence && open:
			open = false
		case isFence:
			open = true
			blocks = append(blocks, Block{Guide: guide, Section: section, Language: fence})
		case open:
			blocks[len(blocks)-1].Text += line
		case strings.HasPrefix(line, "#"):
			section = strings.TrimSpace(strings.TrimLeft(line, "#"))
		}
	}
	return blocks
}

// Commands returns the commands of all guides in their order.
func Commands(project string) (commands []Command, err error) {
	blocks, err := Blocks(project)
	for _, block := range blocks {
		if block.Language != "sh" {
			continue
		}
		for _, text := range split(block.Text) {
			commands = append(commands, Command{block.Guide, block.Section, text})
		}
	}
	return commands, err
}

// Script returns the commands of a section that a test runs: all but those that are exempt.
func Script(project, guide, section string) (string, error) {
	commands, err := Commands(project)
	if err != nil {
		return "", err
	}
	var lines []string
	for _, command := range commands {
		if command.Guide == guide && command.Section == section && reason(command) == "" {
			lines = append(lines, command.Text)
		}
	}
	if lines == nil {
		return "", fmt.Errorf("%s has no commands to run in section %q", guide, section)
	}
	return strings.Join(lines, "\n"), nil
}
