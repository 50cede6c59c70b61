// SPDX-License-Identifier: Apache-2.0

package capture

// PodRef identifies one pod. All fields are empty for a sandbox that belongs to no Kubernetes pod.
type PodRef struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
}

func (p PodRef) String() string { return p.Namespace + "/" + p.Name }
