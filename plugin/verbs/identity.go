// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/capture-cni/capture-cni/plugin/capture"
)

// parseIdentity reads the pod's namespace, name and UID from CNI_ARGS ("KEY=value;KEY=value"). The
// PodRef has no name if CNI_ARGS names no Kubernetes pod.
func parseIdentity(args string) (capture.PodRef, error) {
	var pod capture.PodRef
	wanted := map[string]*string{
		"K8S_POD_NAME":      &pod.Name,
		"K8S_POD_NAMESPACE": &pod.Namespace,
		"K8S_POD_UID":       &pod.UID,
	}
	seen := map[string]string{}
	for pair := range strings.SplitSeq(args, ";") {
		key, value, _ := strings.Cut(pair, "=")
		// Multus sets each key twice, to the same value.
		if other, ok := seen[key]; ok && other != value && strings.HasPrefix(key, "K8S_") {
			return capture.PodRef{}, argsError("%s is set to both %q and %q", key, other, value)
		}
		seen[key] = value
		if field := wanted[key]; field != nil {
			*field = value
		}
	}
	if (pod.Name == "") != (pod.Namespace == "") {
		return capture.PodRef{}, argsError("expected both K8S_POD_NAME and K8S_POD_NAMESPACE, or neither; got %q and %q", pod.Name, pod.Namespace)
	}
	return pod, nil
}

func argsError(format string, args ...any) error {
	return failure{fmt.Errorf("CNI_ARGS: "+format, args...), types.ErrInvalidEnvironmentVariables, capture.ReasonInput}
}

// isStaticUID reports whether a UID is a hash of 128 bits, which the kubelet computes for a static pod whose
// manifest sets no UID. The API server uses a UUID for other pods.
func isStaticUID(uid string) bool {
	return len(uid) == 32 && strings.Trim(uid, "0123456789abcdef") == ""
}
