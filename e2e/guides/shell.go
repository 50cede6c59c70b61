// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"regexp"
	"strings"
)

var hereDocument = regexp.MustCompile(`<<'?(\w+)'?`)

// split returns the commands of a block: its lines, joined where a line ends in a
// backslash, within a quote, or before the end of a here-document.
func split(block string) (commands []string) {
	var command, end string
	for line := range strings.Lines(block) {
		if command == "" && (strings.TrimSpace(line) == "" || strings.HasPrefix(strings.TrimSpace(line), "#")) {
			continue
		}
		command += line
		if match := hereDocument.FindStringSubmatch(line); match != nil && end == "" {
			end = match[1]
			continue
		}
		if end != "" && strings.TrimSpace(line) != end {
			continue
		}
		if end == "" && (strings.HasSuffix(line, "\\\n") || isOpen(command)) {
			continue
		}
		commands = append(commands, strings.TrimSpace(command))
		command, end = "", ""
	}
	return commands
}

// isOpen reports whether a quote goes on behind the text.
func isOpen(text string) bool {
	_, quote := scan(text)
	return quote != 0
}

// Calls returns the programs that a command executes, each with its arguments. Variables,
// redirections, loops and what is behind them are left out.
func (c Command) Calls() (calls [][]string) {
	text := c.Text
	if at := hereDocument.FindStringIndex(text); at != nil {
		text = text[:at[0]]
	}
	words, _ := scan(text)
	var call []string
	finish := func() {
		if len(call) > 0 {
			calls = append(calls, call)
		}
		call = nil
	}
	for i := 0; i < len(words); i++ {
		word := words[i]
		switch {
		case word.operator && strings.Contains("<>", word.text[:1]):
			i++ // the file
		case word.operator:
			finish()
		case len(call) == 0 && (isKeyword(word.text) || isAssignment(word.text)):
		case len(call) == 0 && word.text == "for":
			for i+1 < len(words) && !words[i+1].operator {
				i++
			}
		default:
			call = append(call, word.text)
		}
	}
	finish()
	return calls
}

func isKeyword(word string) bool {
	switch word {
	case "until", "while", "do", "done", "if", "then", "fi":
		return true
	}
	return false
}

var assignment = regexp.MustCompile(`^[A-Za-z_]\w*=`)

func isAssignment(word string) bool { return assignment.MatchString(word) }

type word struct {
	text     string
	operator bool
}

// scan returns the words of a command, without their quotes, and the quote that is open at
// its end.
func scan(text string) (words []word, quote rune) {
	var current strings.Builder
	begun, comment, escaped, depth := false, false, false, 0
	finish := func() {
		if begun {
			words = append(words, word{text: current.String()})
		}
		current.Reset()
		begun = false
	}
	operator := func(r rune) {
		finish()
		words = append(words, word{string(r), true})
	}
	for _, r := range text {
		switch {
		case comment:
			comment = r != '\n'
		case escaped:
			escaped = false
			if r != '\n' {
				current.WriteRune(r)
				begun = true
			}
		case r == '\\' && quote != '\'':
			escaped = true
		case quote != 0 && r == quote:
			quote = 0
		case quote == 0 && (r == '\'' || r == '"'):
			quote, begun = r, true
		case quote == 0 && r == '(':
			depth++
			current.WriteRune(r)
		case quote == 0 && r == ')':
			depth--
			current.WriteRune(r)
		case quote != 0 || depth > 0:
			current.WriteRune(r)
			begun = true
		case r == '#' && !begun:
			comment = true
		case r == ' ' || r == '\t':
			finish()
		case strings.ContainsRune("|&;<>\n", r):
			operator(r)
		default:
			current.WriteRune(r)
			begun = true
		}
	}
	finish()
	return words, quote
}
