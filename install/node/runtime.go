// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	cri "k8s.io/cri-client/pkg"

	"github.com/capture-cni/capture-cni/install/conflist"
)

const (
	criTimeout = 2 * time.Second

	// connectTimeout lets a runtime be as busy as it is when a node starts all
	// its pods: without one to ask, the agent would take a mode that needs none.
	connectTimeout = 10 * time.Second
)

// Runtime is the node's container runtime, asked over its CRI socket.
type Runtime struct{ service internalapi.RuntimeService }

// Connect connects to a CRI socket.
func Connect(ctx context.Context, socket string) (*Runtime, error) {
	service, err := cri.NewRemoteRuntimeServiceBuilder().WithEndpoint("unix://" + socket).WithConnectionTimeout(connectTimeout).Build(ctx)
	if err != nil {
		return nil, fmt.Errorf("connecting to the runtime at %s: %w", socket, err)
	}
	return &Runtime{service}, nil
}

// Close ends the connection.
func (r *Runtime) Close() error { return r.service.Close(context.Background()) }

// Service is the connection itself.
func (r *Runtime) Service() internalapi.RuntimeService { return r.service }

// CNIConfig is what the runtime has loaded, as containerd tells it.
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

// errNotTold is the answer of a runtime that does not say what it has loaded.
var errNotTold = errors.New("the runtime does not tell which network configuration it has loaded")

// CNIConfig asks for it.
func (r *Runtime) CNIConfig(ctx context.Context) (CNIConfig, error) {
	ctx, cancel := context.WithTimeout(ctx, criTimeout)
	defer cancel()
	status, err := r.service.Status(ctx, true)
	if err != nil {
		return CNIConfig{}, fmt.Errorf("asking the runtime for its status: %w", err)
	}
	text, ok := status.Info["cniconfig"]
	if !ok {
		return CNIConfig{}, errNotTold
	}
	var loaded CNIConfig
	if err := json.Unmarshal([]byte(text), &loaded); err != nil {
		return CNIConfig{}, fmt.Errorf("reading the runtime's network configuration: %w", err)
	}
	return loaded, nil
}

// loadTime is how long a runtime may take to load a file that it watches.
const loadTime = 5 * time.Second

// loadsPlugin waits for the runtime to have loaded the plugin, and gives up once
// it must have, or if it never tells. An error is ctx's: nothing is known then.
func (r *Runtime) loadsPlugin(ctx context.Context) (bool, error) {
	for deadline := time.Now().Add(loadTime); time.Now().Before(deadline); {
		loaded, err := r.CNIConfig(ctx) // fails now and then where a node is busy
		switch {
		case err == nil && loaded.HasPlugin():
			return true, nil
		case errors.Is(err, errNotTold):
			return false, nil
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("asking the runtime whether it loads a drop-in: %w", ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
	return false, nil
}

// isCRIO goes by the name that it gives itself.
func (r *Runtime) isCRIO(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, criTimeout)
	defer cancel()
	version, err := r.service.Version(ctx, "")
	return err == nil && version.RuntimeName == "cri-o"
}

// HasPlugin tells whether the runtime would call the plugin.
func (c CNIConfig) HasPlugin() bool {
	for _, network := range c.Networks {
		for _, plugin := range network.Config.Plugins {
			if plugin.Network.Type == conflist.PluginType {
				return true
			}
		}
	}
	return false
}

// statusAnnotation is on every pod that the injector has been at.
const statusAnnotation = "sidecar.istio.io/status"

// MeshedPods names the pods that run on the node and count on the plugin.
func (r *Runtime) MeshedPods(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, criTimeout)
	defer cancel()
	ready := &runtimeapi.PodSandboxFilter{State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}}
	sandboxes, err := r.service.ListPodSandbox(ctx, ready)
	if err != nil {
		return nil, fmt.Errorf("asking the runtime for its pods: %w", err)
	}
	var pods []string
	for _, sandbox := range sandboxes {
		if _, ok := sandbox.Annotations[statusAnnotation]; ok {
			pods = append(pods, sandbox.Metadata.Namespace+"/"+sandbox.Metadata.Name)
		}
	}
	return pods, nil
}
