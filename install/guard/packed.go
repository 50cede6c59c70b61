// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"fmt"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// packed is an Intent that needs little memory: a node's pods can list a
// million ranges among them, of 32 bytes each. It is unpacked where a pod's
// rules have changed, and now and then.
type packed []byte

func pack(intent capture.Intent) (packed, error) {
	var buffer bytes.Buffer
	writer, err := flate.NewWriter(&buffer, flate.BestSpeed)
	if err == nil {
		err = json.NewEncoder(writer).Encode(intent)
	}
	if err == nil {
		err = writer.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("packing an intent: %w", err)
	}
	return bytes.Clone(buffer.Bytes()), nil
}

// unpack undoes pack; of what else it could be made there is nothing.
func (p packed) unpack() capture.Intent {
	var intent capture.Intent
	if err := json.NewDecoder(flate.NewReader(bytes.NewReader(p))).Decode(&intent); err != nil {
		panic("guard: " + err.Error())
	}
	return intent
}
