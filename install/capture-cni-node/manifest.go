// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/install/manifest"
)

// readPod reads a file that contains exactly one pod, or one template of pods.
func readPod(file string, stdin io.Reader, warnings io.Writer) (*corev1.Pod, error) {
	found, err := manifest.Read(file, stdin)
	if err != nil {
		return nil, err
	}
	for _, warning := range found.Warnings {
		fmt.Fprintf(warnings, "warning: %s: %s\n", file, warning)
	}
	if len(found.Pods) != 1 {
		return nil, fmt.Errorf("%s has %d pods and templates, and %d other objects: expected one pod or template",
			file, len(found.Pods), found.Others)
	}
	return found.Pods[0].Pod, nil
}
