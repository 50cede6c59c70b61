// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
)

// scrubbed stands for what was taken out.
const scrubbed = "(scrubbed)"

// Scrub takes out what opens doors: in JSON whatever stands under a name that
// speaks of it, and in any text tokens, passwords in URLs, and private keys.
func Scrub(content []byte) []byte {
	var document any
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.UseNumber()
	if decoder.Decode(&document) == nil && !decoder.More() {
		var out bytes.Buffer
		encoder := json.NewEncoder(&out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		if encoder.Encode(scrubValue(document)) == nil {
			content = out.Bytes()
		}
	}
	for _, secret := range texts() {
		content = regexp.MustCompile(secret.pattern).ReplaceAll(content, []byte(secret.with))
	}
	return content
}

type text struct{ pattern, with string }

// texts are secrets by their looks.
func texts() []text {
	return []text{
		{`eyJ[\w-]{10,}\.[\w-]+\.[\w-]*`, scrubbed}, // a token, RFC 7519
		{`(?i)\b(bearer|basic) [\w+/=.~-]{8,}`, "$1 " + scrubbed},
		{`(\w://[^\s/:@]*):[^\s/@]+@`, "$1:" + scrubbed + "@"},
		{`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`, scrubbed},
	}
}

func scrubValue(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			if isSecret(name) {
				v[name] = scrubbed
			} else {
				v[name] = scrubValue(inner)
			}
		}
	case []any:
		for i, inner := range v {
			v[i] = scrubValue(inner)
		}
	}
	return value
}

// isSecret goes by a key's name. A file's path is none.
func isSecret(name string) bool {
	plain := strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(name))
	if strings.HasSuffix(plain, "file") || strings.HasSuffix(plain, "path") {
		return false
	}
	for _, word := range []string{"password", "passwd", "passphrase", "secret", "token", "credential", "apikey", "privatekey", "keydata", "authorization"} {
		if strings.Contains(plain, word) {
			return true
		}
	}
	return plain == "auth" || plain == "key"
}
