// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
)

// Labels of namespaces whose pods the injector injects.
const (
	Injected         = "istio-injection=enabled"       // without an init container, for a CNI plugin
	InjectedWithInit = "test.local/istio-init=enabled" // with an init container that needs NET_ADMIN
)

const injectorAddress = "127.0.0.1:9443" // in the control box

const webhooks = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: injector}
webhooks:
- name: cni.injector.test.local
  namespaceSelector: {matchLabels: {istio-injection: enabled}}
  clientConfig: {url: "https://%[1]s/inject", caBundle: %[2]s}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  admissionReviewVersions: [v1]
  sideEffects: None
  reinvocationPolicy: Never
- name: init.injector.test.local
  namespaceSelector: {matchLabels: {test.local/istio-init: enabled}}
  clientConfig: {url: "https://%[1]s/inject-init", caBundle: %[2]s}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  admissionReviewVersions: [v1]
  sideEffects: None
  reinvocationPolicy: Never
`

// StartInjector starts the injector and registers its webhooks.
func (c *Cluster) StartInjector(ctx context.Context) error {
	if err := c.Control.startDaemon(c.path("bin"), "apps", "injector", injectorAddress, AppImage, c.path("pki", "apiserver.crt"), c.path("pki", "apiserver.key")); err != nil {
		return err
	}
	ca, err := os.ReadFile(c.path("pki", "ca.crt"))
	if err != nil {
		return err
	}
	_, err = c.Kubectl(ctx, fmt.Sprintf(webhooks, injectorAddress, base64.StdEncoding.EncodeToString(ca)), "apply", "--filename=-")
	return err
}
