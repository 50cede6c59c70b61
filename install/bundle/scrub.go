// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"strings"
)

// scrubbed stands for what was taken out.
const scrubbed = "(scrubbed)"

// Scrub takes out what opens doors: in JSON whatever stands under a name that
// speaks of it, and in any text tokens, passwords in URLs, private keys and, as
// far as a line shows it, values with such a name.
func Scrub(content []byte) []byte {
	var document, more any
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	if decoder.Decode(&document) != nil || !errors.Is(decoder.Decode(&more), io.EOF) {
		return []byte(scrubNamed(scrubText(string(content))))
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if encoder.Encode(scrubValue(document)) != nil {
		return nil
	}
	return out.Bytes()
}

func scrubValue(value any) any {
	switch v := value.(type) {
	case string:
		return scrubText(v)
	case map[string]any:
		clean := make(map[string]any, len(v))
		for name, inner := range v {
			if isSecret(name) {
				inner = scrubbed
			}
			clean[scrubText(name)] = scrubValue(inner)
		}
		return clean
	case []any:
		for i, inner := range v {
			v[i] = scrubValue(inner)
		}
	}
	return value
}

type text struct {
	secret *regexp.Regexp
	with   string
}

// texts are secrets by their looks. Keys come first: another pattern could take
// the line that they are known by.
var texts = []text{
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY( BLOCK)?-----.*?(-----END [A-Z ]*PRIVATE KEY( BLOCK)?-----|$)`), scrubbed},
	{regexp.MustCompile(`eyJ[\w-]{10,}\.[\w-]+\.[\w-]*`), scrubbed}, // a token, RFC 7519
	{regexp.MustCompile(`(?i)\b(bearer|basic) [\w+/=.~-]{8,}`), "$1 " + scrubbed},
	{regexp.MustCompile(`(\w://[^\s/:@]*):[^\s/]+@`), "$1:" + scrubbed + "@"},
}

func scrubText(text string) string { return replace(texts, text) }

func replace(what []text, in string) string {
	for _, t := range what {
		in = t.secret.ReplaceAllString(in, t.with)
	}
	return in
}

const secretWords = `passw|passphrase|secret|token|credential|api[_-]?key|access[_-]?key|private[_-]?key|encryption[_-]?key|key[_-]?data|authorization`

// named are secrets by their names, in JSON that is broken and in YAML.
var named = []text{
	{regexp.MustCompile(`(?i)("[^"\\]*(?:` + secretWords + `)[^"\\]*"\s*:\s*)"(?:[^"\\]|\\.)*"?`), `$1"` + scrubbed + `"`},
	{regexp.MustCompile(`(?im)^(\s*(?:- )?[\w.-]*(?:` + secretWords + `)[\w.-]*\s*[:=]\s*)[^\s"].*$`), "$1" + scrubbed},
}

func scrubNamed(text string) string { return replace(named, text) }

var secretName = regexp.MustCompile(`(?i)` + secretWords + `|^(auth|key)$`)

// isSecret goes by a key's name. A file's path is none.
func isSecret(name string) bool {
	lower := strings.ToLower(name)
	return secretName.MatchString(name) && !strings.HasSuffix(lower, "file") && !strings.HasSuffix(lower, "path")
}
