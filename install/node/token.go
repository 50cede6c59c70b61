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

// readLifetime returns the lifetime of a service account's token (RFC 7519). It does not
// verify the token: the API server does.
func readLifetime(token string) (lifetime, error) {
	parts := strings.Split(strings.TrimSpace(token), ".")
	if len(parts) != 3 {
		return lifetime{}, errors.New("reading a token: it is not a JWT")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return lifetime{}, fmt.Errorf("reading a token: %w", err)
	}
	var claims struct{ Iat, Exp int64 }
	if err := json.Unmarshal(payload, &claims); err != nil {
		return lifetime{}, fmt.Errorf("reading a token: %w", err)
	}
	if claims.Exp <= claims.Iat || claims.Iat <= 0 {
		return lifetime{}, errors.New("reading a token: expected the claims iat and exp")
	}
	return lifetime{time.Unix(claims.Iat, 0), time.Unix(claims.Exp, 0)}, nil
}

// renewal returns when half of the lifetime is over.
func (l lifetime) renewal() time.Time { return l.issued.Add(l.expires.Sub(l.issued) / 2) }
