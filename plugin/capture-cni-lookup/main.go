// SPDX-License-Identifier: Apache-2.0

// Command capture-cni-lookup reads one pod from the API server. The plugin capture-cni executes it if
// the plugin's configuration names no agent, or if the node agent does not answer within a second, or
// fails to look the pod up. It reads a request from stdin, and writes the answer to stdout.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/capture-cni-lookup/apiclient"
	"github.com/capture-cni/capture-cni/plugin/lookup"
	"github.com/capture-cni/capture-cni/plugin/trust"
)

// timeout limits the lookup, in case the caller never ends the program.
const timeout = 10 * time.Second

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println("capture-cni-lookup", config.OwnVersion())
		return
	}
	if command := os.Getenv("CNI_COMMAND"); command != "" {
		os.Exit(refuse(command, os.Stdout))
	}
	if err := answer(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "capture-cni-lookup:", err)
		os.Exit(1)
	}
}

// refuse answers a runtime that calls this program as a CNI plugin, which a network configuration can
// cause, because the program is among the runtime's plugins. It lets DEL succeed, because a failing DEL
// would prevent the pod's removal, and returns an error for any other command.
func refuse(command string, stdout io.Writer) (status int) {
	if command == "DEL" {
		return 0
	}
	fault := types.NewError(types.ErrInvalidNetworkConfig,
		`capture-cni-lookup is no CNI plugin: expected the type "capture-cni" in the network configuration`, "")
	_ = json.NewEncoder(stdout).Encode(fault) // if this fails, the exit status still shows the error
	return 1
}

func answer(stdin io.Reader, stdout io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var request lookup.Request
	if err := json.NewDecoder(io.LimitReader(stdin, lookup.MaxRequest)).Decode(&request); err != nil {
		return fmt.Errorf("reading the request on stdin: %w", err)
	}
	if err := json.NewEncoder(stdout).Encode(lookUp(ctx, request)); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}

// lookUp reads the pod with the credentials in an allowed directory. It also answers the plugin of an
// earlier release, which can call this program while an agent replaces both. For a pod with a fence,
// such a plugin gets a fault, because it would not apply the fence.
func lookUp(ctx context.Context, request lookup.Request) (answer lookup.Answer) {
	if asked := request.Version; asked >= capture.OldestPodVersion && asked < capture.PodVersion {
		request.Version = capture.PodVersion
		defer func() {
			if answer.Pod != nil && capture.Fenced(answer.Pod.Annotations) {
				answer = lookup.Answer{Fault: &lookup.Fault{Kind: lookup.Failed, Message: "the pod has a fence, " +
					"which only a plugin of the same release as capture-cni-lookup applies: wait until the agent has installed it"}}
			}
			answer.Version = asked
		}()
	}
	err := trust.CheckPath("kubeconfig", filepath.Join(request.Directory, config.KubeconfigName))
	if err != nil && request.Version == capture.PodVersion {
		return lookup.Answer{Version: request.Version, Fault: &lookup.Fault{Kind: lookup.Untrusted, Message: err.Error()}}
	}
	return apiclient.Answer(ctx, request)
}
