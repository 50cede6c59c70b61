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
	corev1 "k8s.io/api/core/v1"
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
	Isolated                 string // its runtime, where that keeps a network stack of its own
}

// asMade is a pod as it was when its sandbox was made.
func (s Sandbox) asMade(now *corev1.Pod) *corev1.Pod {
	then := now.DeepCopy()
	then.Annotations, then.Labels = s.Annotations, s.Labels
	return then
}

// concerns reports whether the pod is in the mesh, as far as the sandbox says it.
func (s Sandbox) concerns() bool {
	return (s.NetNS != "" || s.Isolated != "") && capture.Meshed(s.Annotations)
}

// reference leaves out what each listing brings anew; a pod may have 256 KiB of
// annotations.
func (s Sandbox) reference() Sandbox {
	s.Labels, s.Annotations = nil, nil
	return s
}

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
	places  map[string]place // by sandbox id; they don't change
}

// place is where a sandbox's traffic is.
type place struct{ netns, isolated string }

// NewCRI makes a Runtime of a connection.
func NewCRI(service internalapi.RuntimeService) *CRI {
	return &CRI{service, map[string]place{}}
}

// Sandboxes implements Runtime. A pod's place costs a status request, made once.
func (c *CRI) Sandboxes(ctx context.Context) ([]Sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, criTimeout)
	defer cancel()
	ready := &runtimeapi.PodSandboxFilter{State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}}
	items, err := c.service.ListPodSandbox(ctx, ready)
	if err != nil {
		return nil, fmt.Errorf("listing sandboxes: %w", err)
	}
	var errs []error
	places := map[string]place{}
	sandboxes := make([]Sandbox, 0, len(items))
	for _, item := range items {
		at, known := c.places[item.Id]
		if !known {
			if at, _, err = c.status(ctx, item.Id); status.Code(errors.Unwrap(err)) == codes.NotFound {
				continue // it ended meanwhile
			}
			if err != nil {
				errs = append(errs, err)
				continue
			}
		}
		places[item.Id] = at
		sandboxes = append(sandboxes, Sandbox{
			ID: item.Id, Namespace: item.Metadata.Namespace, Name: item.Metadata.Name, UID: item.Metadata.Uid,
			Labels: item.Labels, Annotations: item.Annotations, NetNS: at.netns, Isolated: at.isolated,
		})
	}
	c.places = places
	return sandboxes, errors.Join(errs...)
}

// Runs implements Runtime.
func (c *CRI) Runs(ctx context.Context, sandbox Sandbox) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, criTimeout)
	defer cancel()
	at, ready, err := c.status(ctx, sandbox.ID)
	return ready && at.netns == sandbox.NetNS, err
}

func (c *CRI) status(ctx context.Context, id string) (at place, ready bool, err error) {
	answer, err := c.service.PodSandboxStatus(ctx, id, true)
	if err != nil {
		return place{}, false, fmt.Errorf("asking for sandbox %s: %w", id, err)
	}
	at, err = placeOf(answer)
	return at, answer.Status.State == runtimeapi.PodSandboxState_SANDBOX_READY, err
}

// placeOf reads what containerd and CRI-O report of a sandbox: its OCI
// specification, and containerd the type of its shim. In CRI-O's answer the
// node's own network has a path like any other.
func placeOf(answer *runtimeapi.PodSandboxStatusResponse) (place, error) {
	if answer.GetStatus().GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE {
		return place{}, nil
	}
	var verbose struct {
		RuntimeType    string
		RuntimeOptions json.RawMessage // of the shim's own form
		RuntimeSpec    struct {
			Linux struct {
				Namespaces []struct{ Type, Path string }
			}
		}
	}
	if err := json.Unmarshal([]byte(answer.GetInfo()["info"]), &verbose); err != nil {
		return place{}, fmt.Errorf("reading a sandbox's information: %w", err)
	}
	var options struct {
		Program string `json:"binary_name"`
	}
	_ = json.Unmarshal(verbose.RuntimeOptions, &options) // of another form, they name no program
	at := place{isolated: isolatedBy(answer.GetStatus().GetRuntimeHandler(), verbose.RuntimeType, options.Program)}
	for _, namespace := range verbose.RuntimeSpec.Linux.Namespaces {
		if namespace.Type == "network" {
			at.netns = namespace.Path
		}
	}
	return at, nil
}
