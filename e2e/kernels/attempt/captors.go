// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/capture-cni/capture-cni/e2e/kernels"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

// captors prints what comes of other projects' programs, one after the other.
func captors(arg string) error {
	var list []kernels.Captor
	if err := json.Unmarshal([]byte(arg), &list); err != nil {
		return err
	}
	n, err := newNode(kernels.Trial{Mode: "REDIRECT", OnlyIPv4: true})
	if err != nil {
		return err
	}
	// Istio's plugin finds it only by this name.
	if err := os.Symlink(n.kubeconfig, filepath.Join(filepath.Dir(n.kubeconfig), "istio-cni-kubeconfig")); err != nil {
		return err
	}
	for _, captor := range list {
		result, err := n.capture(captor)
		if err != nil {
			return err
		}
		line, err := json.Marshal(result)
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", line)
	}
	return nil
}

// capture starts a pod with a captor.
func (n node) capture(captor kernels.Captor) (kernels.Captured, error) {
	result := kernels.Captured{Name: captor.Name}
	pod, peer, err := newPod()
	if err != nil {
		return result, err
	}
	defer serve(pod, peer)()
	if captor.Configuration != "" {
		result.Fault = n.callPlugin(captor.Program, strings.ReplaceAll(captor.Configuration, "DIRECTORY", filepath.Dir(n.kubeconfig)), "ADD", "web", pod)
	} else {
		result.Fault = initialize(captor, pod)
	}
	result.Answer = ask(pod, 1)[0]
	return result, errors.Join(pod.Close(), peer.Close())
}

// initialize runs a captor in the pod's namespace.
func initialize(captor kernels.Captor, pod *lab.Host) (fault string) {
	_ = pod.Do(func() error {
		if out, err := inContainer(program(captor.Program), captor.Args...).CombinedOutput(); err != nil {
			fault = fmt.Sprintf("%v: %s", err, out)
		}
		return nil
	})
	return fault
}
