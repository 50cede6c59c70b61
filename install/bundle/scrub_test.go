// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	header  = "eyJhbGciOiJSUzI1NiIsImtpZCI6IiJ9"
	payload = "eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQ6YTpiIn0"
	jwt     = header + "." + payload + ".c2lnbmF0dXJl-_x"
	pem     = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\nq83vEjRWeJq\n-----END RSA PRIVATE KEY-----"
)

// TestScrubText takes secrets by their looks, and nothing else.
func TestScrubText(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ text, want string }{
		"nothing":                 {"", ""},
		"prose":                   {"the token ends at noon: basic facts\n", "the token ends at noon: basic facts\n"},
		"a token":                 {"token=" + jwt + ";", "token=(scrubbed)"},
		"a token without a seal":  {header + "." + payload + ".", "(scrubbed)"},
		"two tokens":              {jwt + " " + jwt, "(scrubbed) (scrubbed)"},
		"no token":                {"eyJ.eyJ.x and eyJoyful.com", "eyJ.eyJ.x and eyJoyful.com"},
		"a bearer":                {"Authorization: Bearer abcdef123456/+=\r\nAccept: */*", "Authorization: (scrubbed)\nAccept: */*"},
		"a bearer with a token":   {"authorization: bearer " + jwt, "authorization: (scrubbed)"},
		"a bearer in small print": {"> authorization: bearer abcdef123456", "> authorization: bearer (scrubbed)"},
		"basic authorization":     {"Authorization: Basic dXNlcjpodW50ZXIy", "Authorization: (scrubbed)"},
		"a password in a URL":     {"GET https://me:hunter2@a.test/path?q=1", "GET https://me:(scrubbed)@a.test/path?q=1"},
		"without a name":          {"redis://:hunter2@a.test:6379", "redis://:(scrubbed)@a.test:6379"},
		"an escaped one":          {"https://me:hun%2Fter2@a.test", "https://me:(scrubbed)@a.test"},
		"an @ in a password":      {"https://me:hun@ter2@a.test", "https://me:(scrubbed)@a.test"},
		"a list that is broken":   {`{"plugins": [{"password": "hunter2", "type": "x"`, `{"plugins": [{"password": "(scrubbed)", "type": "x"`},
		"YAML":                    {"users:\n- name: me\n  token: hunter2\n  tokens: 3\n", "users:\n- name: me\n  token: (scrubbed)\n  tokens: (scrubbed)\n"},
		"a list with a tail":      {`{"type": "x"}} {"type": "y"}`, `{"type": "x"}} {"type": "y"}`},
		"a key behind a bearer":   {"Bearer " + pem, "Bearer (scrubbed)"},
		"two URLs":                {"http://a:b@c http://d:e@f", "http://a:(scrubbed)@c http://d:(scrubbed)@f"},
		"a URL without":           {"https://a.test:6443/api/v1?at=12:30 to me@a.test", "https://a.test:6443/api/v1?at=12:30 to me@a.test"},
		"an address":              {"dial tcp [fd00::1]:443: to 10.0.0.1:15001@eth0", "dial tcp [fd00::1]:443: to 10.0.0.1:15001@eth0"},
		"a private key":           {"before\n" + pem + "\nafter", "before\n(scrubbed)\nafter"},
		"two keys":                {pem + "\nbetween\n" + pem, "(scrubbed)\nbetween\n(scrubbed)"},
		"a PKCS #8 key":           {"-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----", "(scrubbed)"},
		"an encrypted key":        {"-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIE\n-----END ENCRYPTED PRIVATE KEY-----", "(scrubbed)"},
		"a key that is cut off":   {"before\n" + pem[:50], "before\n(scrubbed)"},
		"a certificate":           {"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"},
		"a public key":            {"-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----\n", "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----\n"},
		"bytes that are no text":  {"\xff\x00\xfe", "\xff\x00\xfe"},
		"JSON that is half there": {`{"plugins": [{"type": "bridge"`, `{"plugins": [{"type": "bridge"`},
		"lines of JSON":           {"{\"a\": 1}\n{\"b\": 2}\n", "{\"a\": 1}\n{\"b\": 2}\n"},
	} {
		if got := string(Scrub([]byte(tt.text))); got != tt.want {
			t.Errorf("%s: %q became %q, want %q", name, tt.text, got, tt.want)
		}
	}
}

// TestScrubJSON takes whatever stands under a name that speaks of a secret, and
// leaves the document with all of its names.
func TestScrubJSON(t *testing.T) {
	t.Parallel()
	const gone = `"(scrubbed)"`
	for document, want := range map[string]string{
		`{"password": "hunter2"}`:                                     `{"password": ` + gone + `}`,
		`{"a": [{"b": {"adminPassword": "hunter2"}}, "c"]}`:           `{"a": [{"b": {"adminPassword": ` + gone + `}}, "c"]}`,
		`[{"passwd": 1}, {"Passphrase": null}, {"API-Key": ["x"]}]`:   `[{"passwd": ` + gone + `}, {"Passphrase": ` + gone + `}, {"API-Key": ` + gone + `}]`,
		`{"client_secret": {"deep": "hunter2"}}`:                      `{"client_secret": ` + gone + `}`,
		`{"etcd": {"key": "MIIE", "client-key-data": "TElJRQ=="}}`:    `{"etcd": {"key": ` + gone + `, "client-key-data": ` + gone + `}}`,
		`{"token": "x", "bearerToken": "y", "token_file": "/t"}`:      `{"token": ` + gone + `, "bearerToken": ` + gone + `, "token_file": "/t"}`,
		`{"auth": "dXNlcjpwYXNz", "credentials": {"a": 1}}`:           `{"auth": ` + gone + `, "credentials": ` + gone + `}`,
		`{"private_key": "x", "privateKeyPath": "/k"}`:                `{"private_key": ` + gone + `, "privateKeyPath": "/k"}`,
		`{"Authorization": "Digest x", "proxy-authorization": "y"}`:   `{"Authorization": ` + gone + `, "proxy-authorization": ` + gone + `}`,
		`{"message": "GET https://me:hunter2@a.test: ` + jwt + `"}`:   `{"message": "GET https://me:(scrubbed)@a.test: (scrubbed)"}`,
		`{"header": "Bearer abcdefgh1234", "` + jwt + `": 1}`:         `{"header": "Bearer (scrubbed)", "(scrubbed)": 1}`,
		`{"pem": "` + strings.ReplaceAll(pem, "\n", `\n`) + `"}`:      `{"pem": "(scrubbed)"}`,
		`{"log": "a\nBearer abcdefgh1234"}`:                           `{"log": "a\nBearer (scrubbed)"}`,
		`{"log": "-----BEGIN PRIVATE KEY-----\nMIIE", "b": 1}`:        `{"log": "(scrubbed)", "b": 1}`,
		`{"keys": ["a"], "keyboard": "qwerty", "author": "me"}`:       `{"keys": ["a"], "keyboard": "qwerty", "author": "me"}`,
		`{"kubeconfig": "/etc/cni/net.d/k", "passwordFile": "/p"}`:    `{"kubeconfig": "/etc/cni/net.d/k", "passwordFile": "/p"}`,
		`{"serial": 12345678901234567890, "one": 1.0, "tiny": 1e-99}`: `{"serial": 12345678901234567890, "one": 1.0, "tiny": 1e-99}`,
		`{"html": "<a & b>", "null": null, "yes": true, "": {}}`:      `{"html": "<a & b>", "null": null, "yes": true, "": {}}`,
		`12345678901234567890`:                                        `12345678901234567890`, `"text"`: `"text"`, `[]`: `[]`, `null`: `null`,
	} {
		got := string(Scrub([]byte(document)))
		if diff := cmp.Diff(spelled(t, want), spelled(t, got)); diff != "" {
			t.Errorf("%s became %s:\n%s", document, got, diff)
		}
	}
}

// spelled is a document's value, numbers as they are written.
func spelled(t *testing.T, document string) (value any) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(document))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		t.Errorf("%q: %v", document, err)
	}
	return value
}

// TestListsStayReadable leaves a list as it is, but for what opens doors.
func TestListsStayReadable(t *testing.T) {
	t.Parallel()
	list := `{
  "cniVersion": "1.0.0",
  "name": "k8s-pod-network",
  "plugins": [
    {
      "etcd_ca_cert_file": "/etc/etcd/ca.crt",
      "etcd_key_file": "/etc/etcd/key",
      "ipam": {
        "ranges": [
          "10.244.0.0/16"
        ],
        "type": "calico-ipam"
      },
      "k8s_auth_token": %q,
      "kubernetes": {
        "kubeconfig": "/etc/cni/net.d/calico-kubeconfig"
      },
      "mtu": 1450,
      "type": "calico"
    }
  ]
}
`
	got := string(Scrub(fmt.Appendf(nil, list, "hunter2")))
	if diff := cmp.Diff(fmt.Sprintf(list, "(scrubbed)"), got); diff != "" {
		t.Error(diff)
	}
}

// FuzzScrub plants secrets into any text and any JSON, and looks for them in
// what comes out.
func FuzzScrub(f *testing.F) {
	for _, text := range []string{"", "see ", "{", `{"a": [1, "b"]}`, `{"a": 1}}`, `"text"`, "12e400", "\xff", "line\n", pem, jwt, "Basic ", "https://me:pass@a.test/"} {
		f.Add(text, " ")
	}
	f.Add(`"a\"`, "\n")
	f.Fuzz(func(t *testing.T, before, after string) {
		document := map[string]any{before: []any{after, map[string]any{"x-password-" + after + "x": "hunter1"}, "hunter2"}}
		for secret, text := range map[string]string{
			"hunter1":        string(inJSON(t, document)),
			"hunter3hunter3": before + " Bearer hunter3hunter3\n" + after,
			"hunter4":        before + " https://me:hunter4@a.test " + after,
			payload:          before + " " + jwt + " " + after,
			"MIIEowIBAAKC":   before + "\n" + pem + "\n" + after,
			"q83vEjRWeJq":    before + "\n" + pem[:len(pem)-10], // cut off
		} {
			if got := scrubTwice(t, text); strings.Contains(got, secret) && !strings.Contains(before+after, secret) {
				t.Errorf("%q became %q", text, got)
			}
		}
		scrubTwice(t, before)
	})
}

// scrubTwice wants JSON to stay JSON, and nothing to be left for a second time.
func scrubTwice(t *testing.T, text string) string {
	t.Helper()
	once := Scrub([]byte(text))
	if json.Valid([]byte(text)) && !json.Valid(once) {
		t.Errorf("%q became %q", text, once)
	}
	if again := Scrub(once); json.Valid(once) == json.Valid([]byte(text)) && !bytes.Equal(again, once) {
		t.Errorf("%q became %q, and then %q", text, once, again)
	}
	return string(once)
}

func inJSON(t *testing.T, value any) []byte {
	t.Helper()
	document, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return document
}
