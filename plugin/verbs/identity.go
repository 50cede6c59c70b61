// SPDX-License-Identifier: Apache-2.0

package verbs

import (
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/capture-cni/capture-cni/plugin/record"
)

// parseIdentity reads CNI_ARGS ("KEY=value;KEY=value"). Keys that are not ours
// don't matter. Not a Kubernetes pod: the zero identity.
func parseIdentity(args string) (record.PodRef, error) {
	var pod record.PodRef
	wanted := map[string]*string{
		"K8S_POD_NAME":      &pod.Name,
		"K8S_POD_NAMESPACE": &pod.Namespace,
		"K8S_POD_UID":       &pod.UID,
	}
	seen := map[string]string{}
	for pair := range strings.SplitSeq(args, ";") {
		key, value, _ := strings.Cut(pair, "=")
		// Multus repeats each key, with the same value.
		if other, ok := seen[key]; ok && other != value && strings.HasPrefix(key, "K8S_") {
			return record.PodRef{}, badArgs("%s is set to both %q and %q", key, other, value)
		}
		seen[key] = value
		if field := wanted[key]; field != nil {
			*field = value
		}
	}
	if (pod.Name == "") != (pod.Namespace == "") {
		return record.PodRef{}, badArgs("expected both K8S_POD_NAME and K8S_POD_NAMESPACE, or neither; got %q and %q", pod.Name, pod.Namespace)
	}
	return pod, nil
}

func badArgs(format string, args ...any) error {
	return failure{fmt.Errorf("CNI_ARGS: "+format, args...), types.ErrInvalidEnvironmentVariables, record.Input}
}

// isStaticUID knows the UID of a pod that the kubelet read from a file or URL:
// a hash, where the API server's are UUIDs.
func isStaticUID(uid string) bool {
	return len(uid) == 32 && strings.Trim(uid, "0123456789abcdef") == ""
}
