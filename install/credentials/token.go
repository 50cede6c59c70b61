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

// Lifetime contains the times when a token was issued and when it expires, from the token's claims.
type Lifetime struct{ Issued, Expires time.Time }

// claims contains the claims of a service account's token that the agent uses.
type claims struct {
	Iat, Exp   int64
	Kubernetes struct {
		Node struct{ Name, UID string } // to which the token is bound, or on which its pod runs; zero for none
	} `json:"kubernetes.io"`
}

// readClaims decodes the claims of a token (RFC 7519). It does not verify the token's signature,
// because only the API server relies on the signature.
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

func readLifetime(token string) (Lifetime, error) {
	c, err := readClaims(token)
	if err != nil {
		return Lifetime{}, err
	}
	if c.Exp <= c.Iat || c.Iat <= 0 {
		return Lifetime{}, errors.New("reading a token: expected the claim iat, and a later exp")
	}
	return Lifetime{time.Unix(c.Iat, 0), time.Unix(c.Exp, 0)}, nil
}

// boundNode returns the name of the Node to which a token is bound, or "" if it is bound to none.
func boundNode(token string) string {
	c, _ := readClaims(token) // a text that is no token is not bound to a Node
	return c.Kubernetes.Node.Name
}

// UIDByToken returns the UID of the Node of this name, if the token of a pod on the Node contains it,
// as in Kubernetes 1.30 and later. Otherwise it returns "".
func UIDByToken(token, node string) string {
	c, _ := readClaims(token) // a text that is no token names no Node
	if c.Kubernetes.Node.Name != node {
		return ""
	}
	return c.Kubernetes.Node.UID
}

// renewal returns the time at which half of the lifetime has passed.
func (l Lifetime) renewal() time.Time { return l.Issued.Add(l.Expires.Sub(l.Issued) / 2) }
