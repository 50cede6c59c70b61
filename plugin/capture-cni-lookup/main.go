// SPDX-License-Identifier: Apache-2.0

// Command capture-cni-lookup reads one pod from the API server, for the plugin
// capture-cni, which executes it while the node agent does not answer. It reads a
// request on stdin and writes the answer to stdout.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/plugin/podapi"
	"github.com/capture-cni/capture-cni/plugin/podlookup"
)

// timeout is for a caller that does not end the program.
const timeout = 10 * time.Second

func main() {
	if len(os.Args) == 2 && os.Args[1] == "--version" {
		fmt.Println("capture-cni-lookup", config.OwnVersion())
		return
	}
	if err := answer(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "capture-cni-lookup:", err)
		os.Exit(1)
	}
}

func answer(stdin io.Reader, stdout io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	var request podlookup.Request
	if err := json.NewDecoder(io.LimitReader(stdin, podlookup.MaxRequest)).Decode(&request); err != nil {
		return fmt.Errorf("reading the request on stdin: %w", err)
	}
	document, err := json.Marshal(podapi.Answer(ctx, request))
	if err != nil {
		return fmt.Errorf("encoding the answer: %w", err)
	}
	if _, err := stdout.Write(document); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}
