// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/capture-cni/capture-cni/plugin/httplimit"
	"github.com/capture-cni/capture-cni/plugin/lookup"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// uidMismatch is the error for an earlier or later pod of the same name.
type uidMismatch struct{ want, found string }

func (m uidMismatch) Error() string {
	return fmt.Sprintf("the pod on the API server has UID %s, expected %s", m.found, m.want)
}

// notOfNode is the error for another node's pod that the request does not name by its UID.
type notOfNode struct {
	pod  record.PodRef
	node string
}

func (n notOfNode) Error() string {
	return fmt.Sprintf("pod %s is not a pod of node %s: expected one of this node, or its UID", n.pod, n.node)
}

// faultOf returns what follows from a failed read of a pod.
func faultOf(err error, pod record.PodRef) *lookup.Fault {
	fault := &lookup.Fault{Kind: lookup.Failed, Message: err.Error()}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		fault.RetryAfter = time.Duration(seconds) * time.Second
	}
	_, mismatch := errors.AsType[uidMismatch](err)
	_, elsewhere := errors.AsType[notOfNode](err)
	_, tooLarge := errors.AsType[httplimit.TooLarge](err)
	switch {
	case apierrors.IsNotFound(err):
		fault.Kind, fault.Message = lookup.Gone, "the API server has no pod "+pod.String()
	case mismatch, elsewhere:
		fault.Kind = lookup.Gone
	case apierrors.IsUnauthorized(err):
		fault.Message += ": the API server refuses the agent's token: check the agent's service account, and whether the API server's keys have changed"
	case apierrors.IsForbidden(err):
		fault.Kind = lookup.Refused
		fault.Message += ": the agent's service account needs the permissions \"get\", \"list\" and \"watch\" for pods of all namespaces"
	case tooLarge, isFinal(err):
		fault.Kind = lookup.Refused
	}
	return fault
}

// isFinal reports whether the API server answered that the request itself is wrong.
func isFinal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	default:
		return code >= 400 && code < 500
	}
}
