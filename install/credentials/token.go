// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Lifetime is when a token was issued and when it expires, by its own claims.
type Lifetime struct{ Issued, Expires time.Time }

// claims are what the agent reads of a service account's token.
type claims struct {
	Iat, Exp   int64
	Kubernetes struct {
		Node struct{ Name, UID string } // that the token is bound to, or its pod runs on; zero for none
	} `json:"kubernetes.io"`
}

// readClaims returns the claims of a token (RFC 7519). It does not verify the token: the
// API server does.
func readClaims(token string) (read claims, err error) {
	parts := strings.Split(strings.TrimSpace(token), ".")
	if len(parts) != 3 {
		return claims{}, errors.New("reading a token: it is not a JWT")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err == nil {
		err = json.Unmarshal(payload, &read)
	}
	if err != nil {
		return claims{}, fmt.Errorf("reading a token: %w", err)
	}
	return read, nil
}

// readLifetime returns the lifetime of a token.
func readLifetime(token string) (Lifetime, error) {
	c, err := readClaims(token)
	if err != nil {
		return Lifetime{}, err
	}
	if c.Exp <= c.Iat || c.Iat <= 0 {
		return Lifetime{}, errors.New("reading a token: expected the claims iat and exp")
	}
	return Lifetime{time.Unix(c.Iat, 0), time.Unix(c.Exp, 0)}, nil
}

// boundNode returns the Node that a token is bound to, "" for none.
func boundNode(token string) string {
	c, _ := readClaims(token) // none is bound to a Node
	return c.Kubernetes.Node.Name
}

// UIDByToken returns the UID of a Node, if a token of a pod there names it, as those of
// Kubernetes 1.30 and later do; else "".
func UIDByToken(token, node string) string {
	c, _ := readClaims(token) // no JWT names a Node
	if c.Kubernetes.Node.Name != node {
		return ""
	}
	return c.Kubernetes.Node.UID
}

// renewal returns when half of the lifetime is over.
func (l Lifetime) renewal() time.Time { return l.Issued.Add(l.Expires.Sub(l.Issued) / 2) }
