// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Sandbox is a pod's sandbox as the runtime created it. Its labels and annotations are the pod's at
// that time, because the runtime does not learn of later edits.
type Sandbox struct {
	ID, Namespace, Name, UID string
	Labels, Annotations      map[string]string
	Created                  time.Time

	// Only a Locator sets the following fields. They are empty for a sandbox in the node's network.
	NetNS   string
	Runtime OCIRuntime

	// NetworkError is the reason for which a Locator could not set NetNS and Runtime, or nil.
	NetworkError error
}

// OCIRuntime is the program that runs a sandbox's containers.
type OCIRuntime struct {
	Handler string // the handler in the pod's runtime class, or "" for the default
	Type    string // containerd's type of the shim
	Program string // the program that the shim's options name, or ""
}

// Sandboxes lists the running sandboxes.
func (c *Client) Sandboxes(ctx context.Context) ([]Sandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ready := &runtimeapi.PodSandboxFilter{State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}}
	answer, err := c.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: ready})
	if err != nil {
		return nil, c.failed("listing sandboxes", err)
	}
	sandboxes := make([]Sandbox, len(answer.Items))
	for i, item := range answer.Items {
		sandboxes[i] = Sandbox{
			ID: item.Id, Namespace: item.GetMetadata().GetNamespace(), Name: item.GetMetadata().GetName(), UID: item.GetMetadata().GetUid(),
			Labels: item.Labels, Annotations: item.Annotations, Created: time.Unix(0, item.CreatedAt),
		}
	}
	return sandboxes, nil
}

// network contains the path of a sandbox's network namespace, and its OCI runtime, because some
// runtimes have a network stack of their own behind the namespace.
type network struct {
	netns   string
	runtime OCIRuntime
}

// locate returns the network of a sandbox, and whether the sandbox runs.
func (c *Client) locate(ctx context.Context, id string) (at network, ready bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	answer, err := c.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil {
		return network{}, false, c.failed("asking for sandbox "+id, err)
	}
	at, err = networkOf(answer)
	return at, answer.GetStatus().GetState() == runtimeapi.PodSandboxState_SANDBOX_READY, err
}

// networkOf returns the network from the runtime's answer about a sandbox. The path comes from the OCI
// specification in the answer of containerd or CRI-O, and the shim's type from containerd's answer. For
// a sandbox in the node's network, networkOf returns zero, although CRI-O's answer contains a path.
func networkOf(answer *runtimeapi.PodSandboxStatusResponse) (network, error) {
	if answer.GetStatus().GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE {
		return network{}, nil
	}
	var verbose struct {
		RuntimeType    string
		RuntimeOptions json.RawMessage // in the shim's own format
		RuntimeSpec    struct {
			Annotations struct {
				Handler string `json:"io.kubernetes.cri-o.RuntimeHandler"` // CRI-O 1.36 reports the handler only here
			}
			Linux struct {
				Namespaces []struct{ Type, Path string }
			}
		}
	}
	if err := json.Unmarshal([]byte(answer.GetInfo()["info"]), &verbose); err != nil {
		return network{}, fmt.Errorf("reading a sandbox's information: %w", err)
	}
	var options struct {
		Program string `json:"binary_name"`
	}
	_ = json.Unmarshal(verbose.RuntimeOptions, &options) // options in another format name no program
	at := network{runtime: OCIRuntime{
		cmp.Or(answer.GetStatus().GetRuntimeHandler(), verbose.RuntimeSpec.Annotations.Handler), verbose.RuntimeType, options.Program,
	}}
	for _, namespace := range verbose.RuntimeSpec.Linux.Namespaces {
		if namespace.Type == "network" {
			at.netns = namespace.Path
		}
	}
	return at, nil
}

// Locator lists sandboxes with their networks. Only one goroutine at a time may call Sandboxes, but
// several may call Runs.
type Locator struct {
	*Client
	networks map[string]network // by sandbox id; a sandbox's network does not change
	failures map[string]int     // number of failed requests for a network, by sandbox id
}

// NewLocator returns a Locator that uses a client.
func NewLocator(client *Client) *Locator {
	return &Locator{client, map[string]network{}, map[string]int{}}
}

// Sandboxes lists the running sandboxes with their networks. It requests the network of each sandbox
// until it has an answer, and keeps the answer. If such a request fails, it sets the sandbox's
// NetworkError, and the listing succeeds. It omits a sandbox that ends meanwhile.
func (l *Locator) Sandboxes(ctx context.Context) (located []Sandbox, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	all, err := l.Client.Sandboxes(ctx)
	if err != nil {
		return nil, err
	}
	// Sort sandboxes whose requests failed before to the end, because a request without an answer uses
	// up the time of the listing.
	slices.SortStableFunc(all, func(a, b Sandbox) int { return cmp.Compare(l.failures[a.ID], l.failures[b.ID]) })
	networks, failures := make(map[string]network, len(all)), map[string]int{}
	for _, sandbox := range all {
		at, err := l.network(ctx, sandbox.ID)
		switch {
		case status.Code(err) == codes.NotFound:
			continue // the sandbox has ended since the listing
		case err != nil:
			sandbox.NetworkError, failures[sandbox.ID] = err, l.failures[sandbox.ID]
		default:
			networks[sandbox.ID], sandbox.NetNS, sandbox.Runtime = at, at.netns, at.runtime
		}
		located = append(located, sandbox)
	}
	l.networks, l.failures = networks, failures
	return located, nil
}

// network returns a sandbox's network, and requests it if it is not known yet. It counts failed
// requests.
func (l *Locator) network(ctx context.Context, id string) (network, error) {
	if at, known := l.networks[id]; known {
		return at, nil
	}
	if ctx.Err() != nil {
		return network{}, fmt.Errorf("asking for sandbox %s: the listing took %s: %w", id, requestTimeout, ctx.Err())
	}
	at, _, err := l.locate(ctx, id)
	if err != nil {
		l.failures[id]++
	}
	return at, err
}

// Runs reports whether a sandbox still runs, in the same network namespace.
func (l *Locator) Runs(ctx context.Context, sandbox Sandbox) (bool, error) {
	at, ready, err := l.locate(ctx, sandbox.ID)
	return ready && at.netns == sandbox.NetNS, err
}

// HaveExited reports whether a sandbox has containers, and all of them have exited.
func (c *Client) HaveExited(ctx context.Context, sandbox Sandbox) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	filter := &runtimeapi.ContainerFilter{PodSandboxId: sandbox.ID}
	answer, err := c.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: filter})
	if err != nil {
		return false, c.failed("listing the containers of sandbox "+sandbox.ID, err)
	}
	for _, container := range answer.Containers {
		if container.State != runtimeapi.ContainerState_CONTAINER_EXITED {
			return false, nil
		}
	}
	return len(answer.Containers) > 0, nil
}
