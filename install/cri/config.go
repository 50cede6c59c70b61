// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CNIConfig is the CNI configuration that the runtime has loaded.
type CNIConfig struct {
	PluginDirs       []string
	PluginConfDir    string
	PluginMaxConfNum int
	Networks         []struct {
		Config struct {
			Name    string
			Plugins []struct{ Network struct{ Type string } }
			Source  string
		}
	}
}

// ErrNoConfig means that the runtime does not report its CNI configuration, which CRI-O's status lacks,
// or reports it in an unknown form.
var ErrNoConfig = errors.New("the runtime does not report which CNI configuration it has loaded")

// CNIConfig returns the CNI configuration that the runtime has loaded, from the status in containerd's
// form. Errors: ErrNoConfig, ErrNoSocket.
func (c *Client) CNIConfig(ctx context.Context) (CNIConfig, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	answer, err := c.runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if status.Code(err) == codes.Unimplemented {
		return CNIConfig{}, fmt.Errorf("%w: %w", ErrNoConfig, err)
	}
	if err != nil {
		return CNIConfig{}, c.failed("asking the runtime for its status", err)
	}
	text, ok := answer.Info["cniconfig"]
	if !ok {
		return CNIConfig{}, ErrNoConfig
	}
	var loaded CNIConfig
	if err := json.Unmarshal([]byte(text), &loaded); err != nil {
		return CNIConfig{}, fmt.Errorf("%w: %w", ErrNoConfig, err)
	}
	return loaded, nil
}

// CRIOConfig returns the active configuration of CRI-O, in the form of its file. CRI-O serves this
// configuration over HTTP at its CRI socket.
func (c *Client) CRIOConfig(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", c.Socket())
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://crio/config", http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return nil, c.failed("asking CRI-O for its configuration", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%w: %s", ErrNoConfig, answer.Status)
	}
	return io.ReadAll(io.LimitReader(answer.Body, maxMessage))
}

// Calls reports whether a loaded network calls a plugin of this type.
func (c CNIConfig) Calls(pluginType string) bool {
	for _, network := range c.Networks {
		for _, plugin := range network.Config.Plugins {
			if plugin.Network.Type == pluginType {
				return true
			}
		}
	}
	return false
}
