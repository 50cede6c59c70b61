// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/version"
)

// recordings is the directory of recorded calls.
const recordings = "/run/recorder"

// record is a CNI plugin that records its environment and stdin, and changes nothing.
func record() error {
	if os.Getenv("CNI_COMMAND") == "VERSION" { // by CRI-O, before it takes a list
		return version.All.Encode(os.Stdout)
	}
	stdin, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	call := struct {
		Environment map[string]string
		Stdin       json.RawMessage
	}{map[string]string{}, stdin}
	for _, variable := range os.Environ() {
		if key, value, _ := strings.Cut(variable, "="); strings.HasPrefix(key, "CNI_") {
			call.Environment[key] = value
		}
	}
	content, err := json.Marshal(call)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(recordings, 0o755); err != nil {
		return err
	}
	name := fmt.Sprintf("%d.json", time.Now().UnixNano())
	if err := os.WriteFile(filepath.Join(recordings, name), content, 0o644); err != nil {
		return err
	}
	var conf struct{ PrevResult json.RawMessage }
	if err := json.Unmarshal(stdin, &conf); err != nil {
		return err
	}
	if call.Environment["CNI_COMMAND"] == "ADD" {
		_, err = os.Stdout.Write(conf.PrevResult)
	}
	return err
}
