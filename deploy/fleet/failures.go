// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/install/terms"
)

// ReadFailures sets the failures of the pods that do not start, by the agents' Events. It
// reads nothing if all pods have started. Without the permission, a note says so.
func (f *Fleet) ReadFailures(ctx context.Context, client *Client) {
	waiting := map[[2]string]*Pod{}
	for i, pod := range f.Pods {
		if pod.State == terms.NotStarted {
			waiting[[2]string{pod.Namespace, pod.Name}] = &f.Pods[i]
		}
	}
	if len(waiting) == 0 {
		return
	}
	ofFailures := metav1.ListOptions{FieldSelector: "involvedObject.kind=Pod,reason=" + captureFailed}
	last := map[*Pod]time.Time{}
	err := Each(ctx, client, metav1.NamespaceAll, &corev1.EventList{}, ofFailures, func(event *corev1.Event) {
		pod := waiting[[2]string{event.InvolvedObject.Namespace, event.InvolvedObject.Name}]
		if pod != nil && event.Reason == captureFailed && !event.LastTimestamp.Time.Before(last[pod]) {
			pod.Failure, last[pod] = event.Message, event.LastTimestamp.Time
		}
	})
	if err != nil {
		f.Notes = append(f.Notes, fmt.Sprintf("why pods do not start is not known: listing the Events of failed ADDs: %s", err))
	}
}
