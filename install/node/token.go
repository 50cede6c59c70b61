// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// lifetime is when a token was issued and when it expires, by its own claims.
type lifetime struct{ issued, expires time.Time }

// claims are what the agent reads of a service account's token.
type claims struct {
	Issued, Expires int64
	Node            string // that the token is bound to; empty for none
}

// readClaims returns the claims of a token (RFC 7519). It does not verify the token: the
// API server does.
func readClaims(token string) (claims, error) {
	parts := strings.Split(strings.TrimSpace(token), ".")
	if len(parts) != 3 {
		return claims{}, errors.New("reading a token: it is not a JWT")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return claims{}, fmt.Errorf("reading a token: %w", err)
	}
	var read struct {
		Iat, Exp   int64
		Kubernetes struct {
			Node struct{ Name string }
		} `json:"kubernetes.io"`
	}
	if err := json.Unmarshal(payload, &read); err != nil {
		return claims{}, fmt.Errorf("reading a token: %w", err)
	}
	return claims{read.Iat, read.Exp, read.Kubernetes.Node.Name}, nil
}

// readLifetime returns the lifetime of a token.
func readLifetime(token string) (lifetime, error) {
	c, err := readClaims(token)
	if err != nil {
		return lifetime{}, err
	}
	if c.Expires <= c.Issued || c.Issued <= 0 {
		return lifetime{}, errors.New("reading a token: expected the claims iat and exp")
	}
	return lifetime{time.Unix(c.Issued, 0), time.Unix(c.Expires, 0)}, nil
}

// boundNode returns the Node that a token is bound to, "" for none.
func boundNode(token string) string {
	c, _ := readClaims(token) // none is bound to a Node
	return c.Node
}

// renewal returns when half of the lifetime is over.
func (l lifetime) renewal() time.Time { return l.issued.Add(l.expires.Sub(l.issued) / 2) }
