// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestIsOwned goes by the controller: only what somebody makes anew may go.
func TestIsOwned(t *testing.T) {
	t.Parallel()
	controller := true
	by := func(kind string, isController *bool) metav1.OwnerReference {
		return metav1.OwnerReference{Kind: kind, Name: "web", Controller: isController}
	}
	for name, tt := range map[string]struct {
		owners []metav1.OwnerReference
		want   bool
	}{
		"nobody":                            {nil, false},
		"a ReplicaSet":                      {[]metav1.OwnerReference{by("ReplicaSet", &controller)}, true},
		"a DaemonSet":                       {[]metav1.OwnerReference{by("DaemonSet", &controller)}, true},
		"a Job":                             {[]metav1.OwnerReference{by("Job", &controller)}, true},
		"a static pod's Node":               {[]metav1.OwnerReference{by("Node", &controller)}, false},
		"an owner that is no controller":    {[]metav1.OwnerReference{by("ReplicaSet", new(bool)), by("ConfigMap", nil)}, false},
		"a controller among others":         {[]metav1.OwnerReference{by("ConfigMap", nil), by("StatefulSet", &controller)}, true},
		"a Node, and another not in charge": {[]metav1.OwnerReference{by("ReplicaSet", nil), by("Node", &controller)}, false},
	} {
		if got := isOwned(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: tt.owners}}); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
