// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	podsOfNode      = 250
	eventsPerMinute = 600
)

// podOn returns one of the pods of a node.
func podOn(node string, number int) *corev1.Pod {
	p := pod(fmt.Sprint("pod-", number), map[string]string{"sidecar.istio.io/status": "{}"})
	p.UID, p.Spec.NodeName = types.UID(fmt.Sprint("uid-", number)), node
	return p
}

// changePods changes the status of one pod after the other.
func (b *bench) changePods(node string, total time.Duration) error {
	for i := range int(total.Minutes() * eventsPerMinute) {
		changed := podOn(node, i%podsOfNode)
		changed.Status.Message = fmt.Sprint("change ", i)
		b.api.Put(changed)
		if err := sleep(b.ctx, time.Minute/eventsPerMinute); err != nil {
			return err
		}
	}
	return nil
}
