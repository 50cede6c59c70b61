// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"encoding/json"
	"fmt"
	"net/netip"
)

// Names of the pods.
const (
	Client = "client"
	Server = "server"
)

// Application is the name of the server's application in a Line.
const Application = Server + "/application"

// ProxyName returns the name of a pod's proxy in a Line.
func ProxyName(pod string, direction Direction) string { return pod + "/" + string(direction) }

// Line is what a proxy or the application writes to each connection.
type Line struct {
	By       string         `json:"by"`
	Client   netip.Addr     `json:"client"`            // where the connection comes from
	Original netip.AddrPort `json:"original,omitzero"` // of a proxy: its destination before it was captured
	Fault    string         `json:"fault,omitempty"`   // of a proxy: why it could not forward the connection
}

// Observation is what the client saw of one connection.
type Observation struct {
	To    netip.AddrPort `json:"to"`
	Lines []Line         `json:"lines,omitempty"` // in the order of the connection's path
	Fault string         `json:"fault,omitempty"` // why the application did not answer
}

// Answered reports whether the application answered.
func (o Observation) Answered() bool {
	return len(o.Lines) > 0 && o.Lines[len(o.Lines)-1].By == Application
}

const (
	maxFault = 100  // bytes
	maxSize  = 4096 // bytes: the kubelet cuts longer messages
)

// Encode returns observations as JSON.
func Encode(observations []Observation) ([]byte, error) {
	for i := range observations {
		cut(&observations[i].Fault)
		for j := range observations[i].Lines {
			cut(&observations[i].Lines[j].Fault)
		}
	}
	message, err := json.Marshal(observations)
	if err == nil && len(message) > maxSize {
		err = fmt.Errorf("they have %d bytes: expected at most %d; test fewer connections", len(message), maxSize)
	}
	if err != nil {
		return nil, fmt.Errorf("encoding the observations: %w", err)
	}
	return message, nil
}

func cut(text *string) {
	if len(*text) > maxFault {
		*text = (*text)[:maxFault] + "…"
	}
}

// Decode reads what Encode returned.
func Decode(message string) ([]Observation, error) {
	var observations []Observation
	if err := json.Unmarshal([]byte(message), &observations); err != nil {
		return nil, fmt.Errorf("reading the observations of the pod client: %w", err)
	}
	return observations, nil
}
