// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/capture-cni-lookup/apiclient"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

// notOfNode is the error for a request that names another node's pod without the pod's UID.
type notOfNode struct {
	pod  capture.PodRef
	node string
}

func (n notOfNode) Error() string {
	return fmt.Sprintf("pod %s is not a pod of node %s: expected a pod of this node, or the pod's UID", n.pod, n.node)
}

// faultOf returns the fault that describes a failed read of a pod with the agent's own rights.
func faultOf(err error, pod capture.PodRef) *lookup.Fault {
	fault := apiclient.FaultOf(err)
	_, elsewhere := errors.AsType[notOfNode](err)
	switch {
	case apierrors.IsNotFound(err):
		fault.Message = "the API server has no pod " + pod.String()
	case elsewhere:
		fault.Kind = lookup.Gone
	case apierrors.IsUnauthorized(err):
		fault.Message += ": the API server refuses the agent's token: " +
			"check the agent's service account, and whether the API server's keys have changed"
	case apierrors.IsForbidden(err):
		fault.Message += ": the agent's service account needs the permissions \"get\", \"list\" and \"watch\" for pods of all namespaces"
	}
	return fault
}
