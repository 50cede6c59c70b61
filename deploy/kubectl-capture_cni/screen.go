// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/report"
)

// screen writes all output of a command, and replaces control characters. Otherwise, text from the
// cluster could control the terminal, because pods, Leases, Events and errors can contain any bytes.
type screen struct {
	out     io.Writer
	colours bool
}

func newScreen(out io.Writer) *screen {
	file, isFile := out.(*os.File)
	return &screen{out, isFile && term.IsTerminal(int(file.Fd())) && os.Getenv("NO_COLOR") == ""}
}

// Write implements io.Writer. It writes a question mark instead of each character that is not printable,
// except line ends and tabs.
func (s *screen) Write(text []byte) (int, error) {
	_, err := io.WriteString(s.out, replace(string(text), "\n\t"))
	return len(text), err
}

// replace returns text with a question mark instead of each character that is neither printable nor part
// of allowed.
func replace(text, allowed string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || strings.ContainsRune(allowed, r) {
			return r
		}
		return '?'
	}, text)
}

// printable returns a text as one line without control characters, so that no part of the text can look
// like a line of this program.
func printable(text string) string { return replace(text, "") }

// writeLines writes the lines of a text, each wrapped and indented.
func writeLines(out io.Writer, indent, text string) {
	for line := range strings.Lines(text) {
		fmt.Fprint(out, wrap(indent, indent+furtherIndent, line))
	}
}

const (
	columns = 80 // width of a terminal

	// furtherIndent is the additional indentation of a text's lines after the first one, so that they
	// can't look like lines of this program.
	furtherIndent = "    "
)

// whole matches the parts of a text that wrap does not split: a word, or a kubectl command, because
// users copy commands.
var whole = regexp.MustCompile(`kubectl [^;]*;?|\S+`)

// wrap splits a text into lines that fit a terminal, except for longer words and commands. The first
// line begins with first, and the other lines begin with further.
func wrap(first, further, text string) string {
	text = printable(strings.TrimSuffix(text, "\n"))
	if utf8.RuneCountInString(first+text) <= columns {
		return first + text + "\n"
	}
	lines, line, separator := "", first, ""
	for _, part := range whole.FindAllString(text, -1) {
		if separator != "" && utf8.RuneCountInString(line+separator+part) > columns {
			lines, line, separator = lines+line+"\n", further, ""
		}
		line, separator = line+separator+part, " "
	}
	return lines + line + "\n"
}

// writeProgress writes a line about the progress of a command.
func writeProgress(out io.Writer, format string, args ...any) {
	fmt.Fprintln(out, printable(fmt.Sprintf(format, args...)))
}

// escape replaces characters of a document that could control a terminal by escape sequences, because
// JSON permits some of these characters in strings. form says whether the document is JSON or will
// become YAML, which does not combine two \u sequences into one character as JSON does.
func escape(document []byte, form string) (escaped []byte) {
	for _, r := range string(document) {
		if unicode.IsPrint(r) || r == '\n' {
			escaped = utf8.AppendRune(escaped, r)
			continue
		}
		if r > math.MaxUint16 && form == "yaml" {
			escaped = fmt.Appendf(escaped, `\U%08x`, r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			escaped = fmt.Appendf(escaped, `\u%04x`, unit)
		}
	}
	return escaped
}

// writeState writes the word for a state. On a terminal, the word has a colour.
func writeState(out io.Writer, word string) {
	s, isScreen := out.(*screen)
	colour := colourOf(word)
	if !isScreen || !s.colours || colour == "" {
		fmt.Fprint(out, printable(word))
		return
	}
	fmt.Fprint(s.out, colour+word+"\x1b[0m")
}

const green, yellow, red = "\x1b[32m", "\x1b[33m", "\x1b[31m"

// colours maps words to colours: words that are not states of pods, and states whose colour differs from
// that of their severity.
var colours = map[string]string{
	string(fleet.Ready): green, string(fleet.Removed): green, "passed": green,
	string(fleet.Waiting): yellow, string(fleet.Unreported): yellow, "skipped": yellow, string(report.InjectedLater): yellow,
	string(fleet.Faulty): red, string(fleet.Stale): red, string(fleet.NoAgent): red, "failed": red,
	string(report.OK): green, string(report.Note): yellow, string(report.NotKnown): yellow, string(report.Problem): red,
}

// colourOf returns the colour of a word for a state, or "" if the word has none.
func colourOf(word string) string {
	return cmp.Or(colours[word], colours[string(report.Code(word).Severity())])
}
