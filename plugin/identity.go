// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// podIdentity is which pod the runtime calls for, from CNI_ARGS.
type podIdentity struct {
	Namespace, Name string
	UID             string // "" where the runtime does not say
}

func (p podIdentity) String() string { return p.Namespace + "/" + p.Name }

// parseIdentity reads CNI_ARGS ("KEY=value;KEY=value"). Keys that are not ours
// don't matter. Not a Kubernetes pod: the zero identity.
func parseIdentity(args string) (podIdentity, error) {
	var pod podIdentity
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
			return podIdentity{}, badArgs("%s stands in it as %q and as %q", key, other, value)
		}
		seen[key] = value
		if field := wanted[key]; field != nil {
			*field = value
		}
	}
	if (pod.Name == "") != (pod.Namespace == "") {
		return podIdentity{}, badArgs("expected both K8S_POD_NAME and K8S_POD_NAMESPACE, or neither; got %q and %q", pod.Name, pod.Namespace)
	}
	return pod, nil
}

func badArgs(format string, args ...any) error {
	return types.NewError(types.ErrInvalidEnvironmentVariables, "CNI_ARGS: "+fmt.Sprintf(format, args...), "")
}

// isStaticUID knows the UID of a pod that the kubelet read from a file or URL:
// a hash, where the API server's are UUIDs.
func isStaticUID(uid string) bool {
	return len(uid) == 32 && strings.Trim(uid, "0123456789abcdef") == ""
}
