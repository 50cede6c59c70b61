// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"fmt"
	"net/netip"
)

// Names of the pods of kubectl capture-cni test.
const (
	TestClient = "client"
	TestServer = "server"
)

// TestApplication is the name of the server's application in a TestLine.
const TestApplication = TestServer + "/application"

// TestProxy returns the name of a pod's proxy in a TestLine.
func TestProxy(pod, direction string) string { return pod + "/" + direction }

// TestLine is the line that the proxies and the application of kubectl capture-cni test write to each
// connection.
type TestLine struct {
	By       string         `json:"by"`
	Client   netip.Addr     `json:"client"`            // the connection's source
	Original netip.AddrPort `json:"original,omitzero"` // only from a proxy: the connection's destination before its capture
	Fault    string         `json:"fault,omitempty"`   // only from a proxy: why the proxy could not forward the connection
}

// TestObservation is the result of one connection by the test's client.
type TestObservation struct {
	To    netip.AddrPort `json:"to"`
	Lines []TestLine     `json:"lines,omitempty"` // in the order of the connection's path
	Fault string         `json:"fault,omitempty"` // why the application did not answer
}

// Answered reports whether the last line of the answer is the application's.
func (o TestObservation) Answered() bool {
	return len(o.Lines) > 0 && o.Lines[len(o.Lines)-1].By == TestApplication
}

const (
	maxTestFault = 100  // bytes
	maxTestSize  = 4096 // bytes; the kubelet cuts longer messages
)

// EncodeTest returns observations as JSON. It cuts long faults, and returns an error for more than
// maxTestSize bytes.
func EncodeTest(observations []TestObservation) ([]byte, error) {
	for i := range observations {
		cutFault(&observations[i].Fault)
		for j := range observations[i].Lines {
			cutFault(&observations[i].Lines[j].Fault)
		}
	}
	message, err := json.Marshal(observations)
	if err == nil && len(message) > maxTestSize {
		err = fmt.Errorf("they have %d bytes: expected at most %d; test fewer connections", len(message), maxTestSize)
	}
	if err != nil {
		return nil, fmt.Errorf("encoding the observations: %w", err)
	}
	return message, nil
}

func cutFault(text *string) {
	if len(*text) > maxTestFault {
		*text = (*text)[:maxTestFault] + "…"
	}
}

// DecodeTest decodes the text that EncodeTest returns.
func DecodeTest(message string) ([]TestObservation, error) {
	var observations []TestObservation
	if err := json.Unmarshal([]byte(message), &observations); err != nil {
		return nil, fmt.Errorf("reading the observations of the pod client: %w", err)
	}
	return observations, nil
}
