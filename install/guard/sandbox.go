// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// Sandbox is a pod as its runtime set it up. Labels and annotations are those
// that it was made with, whatever was edited since.
type Sandbox struct {
	ID, Namespace, Name, UID string
	Labels, Annotations      map[string]string
	NetNS                    string // empty for the node's own
}

// concerns reports whether the pod is in the mesh, as far as the sandbox says it.
func (s Sandbox) concerns() bool { return s.NetNS != "" && capture.Meshed(s.Annotations) }

// Runtime is what the guard needs of the node's runtime.
type Runtime interface {
	// Sandboxes lists the pods that run; also with an error, all that it could
	// learn about.
	Sandboxes(ctx context.Context) ([]Sandbox, error)

	// Runs tells whether a sandbox still runs, in the namespace that it had.
	Runs(ctx context.Context, sandbox Sandbox) (bool, error)

	// Listen calls began for each sandbox that begins, once it has called
	// connected, until the stream or ctx ends. Errors: ErrNoEvents.
	Listen(ctx context.Context, connected, began func()) error
}

const criTimeout = 5 * time.Second

// CRI is a Runtime behind a CRI socket.
type CRI struct {
	service internalapi.RuntimeService
	netns   map[string]string // by sandbox id; they don't change
}

// NewCRI makes a Runtime of a connection.
func NewCRI(service internalapi.RuntimeService) *CRI {
	return &CRI{service, map[string]string{}}
}

// Sandboxes implements Runtime. Where a pod's namespace is costs a question
// each, asked once.
func (c *CRI) Sandboxes(ctx context.Context) ([]Sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, criTimeout)
	defer cancel()
	ready := &runtimeapi.PodSandboxFilter{State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}}
	items, err := c.service.ListPodSandbox(ctx, ready)
	if err != nil {
		return nil, fmt.Errorf("listing sandboxes: %w", err)
	}
	var errs []error
	netns := map[string]string{}
	sandboxes := make([]Sandbox, 0, len(items))
	for _, item := range items {
		path, known := c.netns[item.Id]
		if !known {
			if path, _, err = c.status(ctx, item.Id); status.Code(errors.Unwrap(err)) == codes.NotFound {
				continue // it ended meanwhile
			}
			if err != nil {
				errs = append(errs, err)
				continue
			}
		}
		netns[item.Id] = path
		sandboxes = append(sandboxes, Sandbox{
			ID: item.Id, Namespace: item.Metadata.Namespace, Name: item.Metadata.Name, UID: item.Metadata.Uid,
			Labels: item.Labels, Annotations: item.Annotations, NetNS: path,
		})
	}
	c.netns = netns
	return sandboxes, errors.Join(errs...)
}

// Runs implements Runtime.
func (c *CRI) Runs(ctx context.Context, sandbox Sandbox) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, criTimeout)
	defer cancel()
	path, ready, err := c.status(ctx, sandbox.ID)
	return ready && path == sandbox.NetNS, err
}

func (c *CRI) status(ctx context.Context, id string) (netns string, ready bool, err error) {
	answer, err := c.service.PodSandboxStatus(ctx, id, true)
	if err != nil {
		return "", false, fmt.Errorf("asking for sandbox %s: %w", id, err)
	}
	netns, err = netnsOf(answer)
	return netns, answer.Status.State == runtimeapi.PodSandboxState_SANDBOX_READY, err
}

// netnsOf reads what containerd and CRI-O alike tell of a sandbox: its OCI
// specification. In CRI-O's, the node's own network has a path like any other.
func netnsOf(answer *runtimeapi.PodSandboxStatusResponse) (string, error) {
	if answer.GetStatus().GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE {
		return "", nil
	}
	var verbose struct {
		RuntimeSpec struct {
			Linux struct {
				Namespaces []struct{ Type, Path string }
			}
		}
	}
	if err := json.Unmarshal([]byte(answer.GetInfo()["info"]), &verbose); err != nil {
		return "", fmt.Errorf("reading a sandbox's information: %w", err)
	}
	for _, namespace := range verbose.RuntimeSpec.Linux.Namespaces {
		if namespace.Type == "network" {
			return namespace.Path, nil
		}
	}
	return "", nil
}
