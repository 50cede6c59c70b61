// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"
)

func jwt(claims string) string {
	return "header." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".signature"
}

func TestReadLifetime(t *testing.T) {
	t.Parallel()
	const claims = `{"iat": 1767225600, "exp": 1767229200, "sub": "system:serviceaccount:capture-cni:capture-cni"}`
	issued := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, token := range []string{jwt(claims), " " + jwt(claims) + "\n"} {
		got, err := readLifetime(token)
		if err != nil || !got.Issued.Equal(issued) || !got.Expires.Equal(issued.Add(time.Hour)) {
			t.Errorf("%q: %+v, %v", token, got, err)
		}
		if want := issued.Add(30 * time.Minute); !got.renewal().Equal(want) {
			t.Errorf("%q is renewed at %s, want %s", token, got.renewal(), want)
		}
	}
	for name, test := range map[string]struct{ token, errContains string }{
		"empty":                  {"", "not a JWT"},
		"two parts":              {"header.payload", "not a JWT"},
		"four parts":             {jwt(claims) + ".more", "not a JWT"},
		"not base64":             {"header.%.signature", "illegal base64"},
		"padded base64":          {"header.e30=.signature", "illegal base64"},
		"not JSON":               {jwt("x"), "invalid character"},
		"a time that is no time": {jwt(`{"iat": 1767225600, "exp": "tomorrow"}`), "cannot unmarshal"},
		"no claims":              {jwt(`{}`), "expected the claim iat, and a later exp"},
		"no end":                 {jwt(`{"iat": 1767225600}`), "expected the claim iat, and a later exp"},
		"no beginning":           {jwt(`{"exp": 1767229200}`), "expected the claim iat, and a later exp"},
		"a beginning below 0":    {jwt(`{"iat": -1, "exp": 1767229200}`), "expected the claim iat, and a later exp"},
		"ends as it begins":      {jwt(`{"iat": 1767225600, "exp": 1767225600}`), "expected the claim iat, and a later exp"},
		"ends before it begins":  {jwt(`{"iat": 1767229200, "exp": 1767225600}`), "expected the claim iat, and a later exp"},
	} {
		got, err := readLifetime(test.token)
		if err == nil || !strings.Contains(err.Error(), test.errContains) || got != (Lifetime{}) {
			t.Errorf("%s: %+v, %v; want an error with %q", name, got, err, test.errContains)
		}
	}
}

// TestUIDByToken reads the UID of the agent's own Node, as API servers write it into the
// tokens of pods.
func TestUIDByToken(t *testing.T) {
	t.Parallel()
	const claims = `{"kubernetes.io": {"namespace": "capture-cni", "node": {"name": "node-1", "uid": "6c1f"}, "pod": {"name": "agent", "uid": "77"}}}`
	for name, test := range map[string]struct{ token, node, want string }{
		"of this node":    {jwt(claims) + "\n", "node-1", "6c1f"},
		"of another node": {jwt(claims), "node-2", ""},
		"no node":         {jwt(`{"kubernetes.io": {}}`), "node-1", ""},
		"no JWT":          {"token", "node-1", ""},
	} {
		if got := UIDByToken(test.token, test.node); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
