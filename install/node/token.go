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

// lifetime is when a token was issued and when it ends, as it says itself.
type lifetime struct{ issued, expires time.Time }

// readLifetime reads a service account's token (RFC 7519). It does not verify
// it: that is the API server's part.
func readLifetime(token string) (lifetime, error) {
	parts := strings.Split(strings.TrimSpace(token), ".")
	if len(parts) != 3 {
		return lifetime{}, errors.New("reading a token: it is no JWT")
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
		return lifetime{}, errors.New("reading a token: it does not say when it ends")
	}
	return lifetime{time.Unix(claims.Iat, 0), time.Unix(claims.Exp, 0)}, nil
}

// renewal is half way through a token's life.
func (l lifetime) renewal() time.Time { return l.issued.Add(l.expires.Sub(l.issued) / 2) }
