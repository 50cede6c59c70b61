// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
)

// Labels of namespaces whose pods the injector injects.
const (
	Injected         = "istio-injection=enabled"       // without an init container, for a CNI plugin
	InjectedWithInit = "test.local/istio-init=enabled" // with an init container that needs NET_ADMIN
)

const injectorAddress = "127.0.0.1:9443" // in the control box

// webhook injects pods of the namespaces that a selector chooses.
const webhook = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: %[1]s}
webhooks:
- name: %[1]s.injector.test.local
  namespaceSelector: {%[2]s}
  clientConfig: {url: "https://%[3]s%[4]s", caBundle: %[5]s}
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
	return errors.Join(
		c.RegisterInjector(ctx, "injector", "/inject", "matchLabels: {istio-injection: enabled}"),
		c.RegisterInjector(ctx, "injector-init", "/inject-init", "matchLabels: {test.local/istio-init: enabled}"),
	)
}

// RegisterInjector has the injector's webhook at a path inject pods of the namespaces that
// selector, in YAML, chooses.
func (c *Cluster) RegisterInjector(ctx context.Context, name, path, selector string) error {
	ca, err := os.ReadFile(c.path("pki", "ca.crt"))
	if err != nil {
		return err
	}
	_, err = c.Kubectl(ctx, fmt.Sprintf(webhook, name, selector, injectorAddress, path, base64.StdEncoding.EncodeToString(ca)), "apply", "--filename=-")
	return err
}
