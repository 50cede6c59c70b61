// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// lookup retries as long as Istio's plugin does.
func lookup(kubeconfig, namespace, name string) (*corev1.Pod, error) {
	access, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("failed to createNewK8sClient: %w", err)
	}
	client, err := rest.HTTPClientFor(access)
	if err != nil {
		return nil, err
	}
	url := fmt.Sprintf("%s/api/v1/namespaces/%s/pods/%s", access.Host, namespace, name)
	for range 30 {
		var pod *corev1.Pod
		if pod, err = get(client, url); err == nil {
			return pod, nil
		}
		time.Sleep(time.Second)
	}
	return nil, err
}

func get(client *http.Client, url string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, response.Status)
	}
	pod := &corev1.Pod{}
	return pod, json.NewDecoder(response.Body).Decode(pod)
}
