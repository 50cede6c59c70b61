// SPDX-License-Identifier: Apache-2.0

package capture

// PodRef names one pod; all of it is empty where it is not a Kubernetes pod.
type PodRef struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	UID       string `json:"uid,omitempty"`
}

func (p PodRef) String() string { return p.Namespace + "/" + p.Name }
