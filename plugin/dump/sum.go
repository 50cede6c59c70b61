// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"crypto/sha256"
	"encoding/binary"
)

// Sum encodes several texts unambiguously, as the input of a hash: each text follows its length.
type Sum []byte

func (s *Sum) Add(texts ...string) {
	for _, text := range texts {
		*s = append(binary.AppendUvarint(*s, uint64(len(text))), text...)
	}
}

func (s *Sum) Sum() [sha256.Size]byte { return sha256.Sum256(*s) }
