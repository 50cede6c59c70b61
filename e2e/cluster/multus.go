// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// MultusNetDir is where Multus reads the configuration of an attachment that has
// none itself.
const MultusNetDir = "/etc/cni/multus/net.d"

// Multus' files on a node. Its configuration sorts before the primary's.
const (
	multusBinary     = "/opt/cni/bin/multus"
	multusConf       = "/etc/cni/net.d/00-multus.conf"
	multusDir        = "/etc/cni/net.d/multus.d"
	multusKubeconfig = multusDir + "/multus.kubeconfig"
	multusCache      = "/var/lib/cni/multus"
)

// multusNetConf contains a copy of the primary's list: when Multus reads the file
// itself, its DEL lacks the address ranges. Its version is OpenShift's: from 0.4.0 on CRI-O
// runs CHECK after ADD, where Multus does not find the addresses. Pods may use attachments of their own
// namespace and of the namespace default, as on OpenShift.
const multusNetConf = `{
  "cniVersion": "0.3.1",
  "name": "multus-cni-network",
  "type": "multus",
  "kubeconfig": "` + multusKubeconfig + `",
  "confDir": "` + MultusNetDir + `",
  "delegates": [%s],
  "namespaceIsolation": true,
  "globalNamespaces": "default"
}
`

const multusManifests = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: network-attachment-definitions.k8s.cni.cncf.io}
spec:
  group: k8s.cni.cncf.io
  scope: Namespaced
  names: {kind: NetworkAttachmentDefinition, plural: network-attachment-definitions, singular: network-attachment-definition}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {config: {type: string}}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: multus, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: multus}
rules:
- {apiGroups: [k8s.cni.cncf.io], resources: [network-attachment-definitions], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [pods, pods/status], verbs: [get, list, watch, update]}
- {apiGroups: ["", events.k8s.io], resources: [events], verbs: [create, patch, update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: multus}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: multus}
subjects: [{kind: ServiceAccount, name: multus, namespace: kube-system}]
`

const multusAccess = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://` + controlIPv4 + `:6443", certificate-authority: %q}}]
users: [{name: u, user: {token: %q}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`

// StartMultus installs Multus between the runtimes and the primary plugin.
func (c *Cluster) StartMultus(ctx context.Context) error {
	token, err := c.multusToken(ctx)
	if err != nil {
		return err
	}
	access := fmt.Sprintf(multusAccess, c.path("pki", "ca.crt"), token)
	for _, node := range c.Nodes {
		primary, err := os.ReadFile(node.Path("/etc/cni/net.d/" + NetworkConf))
		if err != nil {
			return err
		}
		err = errors.Join(
			os.MkdirAll(node.Path(multusDir), 0o755), os.MkdirAll(node.Path(MultusNetDir), 0o755),
			os.Symlink(filepath.Join(c.Parts, "multus"), node.Path(multusBinary)),
			os.WriteFile(node.Path(multusKubeconfig), []byte(access), 0o600),
		)
		if err != nil {
			return fmt.Errorf("installing Multus on %s: %w", node.Name, err)
		}
		if err := replaceFile(node.Path(multusConf), []byte(fmt.Sprintf(multusNetConf, primary))); err != nil {
			return err
		}
	}
	return nil
}

// multusToken installs what Multus has in the API server, and returns a token of its
// service account.
func (c *Cluster) multusToken(ctx context.Context) (string, error) {
	if _, err := c.Kubectl(ctx, multusManifests, "apply", "--filename=-"); err != nil {
		return "", err
	}
	if _, err := c.Kubectl(ctx, "", "wait", "--for=condition=Established", "--timeout="+Timeout.String(), "crd/network-attachment-definitions.k8s.cni.cncf.io"); err != nil {
		return "", err
	}
	token, err := c.Kubectl(ctx, "", "create", "token", "multus", "--namespace=kube-system", "--duration=1h")
	return strings.TrimSpace(token), err
}

// StopMultus uninstalls it, with its cache and the attachments.
func (c *Cluster) StopMultus(ctx context.Context) error {
	var errs []error
	for _, node := range c.Nodes {
		for _, path := range []string{multusConf, multusDir, filepath.Dir(MultusNetDir), multusBinary, multusCache} {
			errs = append(errs, os.RemoveAll(node.Path(path)))
		}
	}
	return errors.Join(append(errs, c.removeMultusAPI(ctx))...)
}

func (c *Cluster) removeMultusAPI(ctx context.Context) error {
	_, err := c.Kubectl(ctx, multusManifests, "delete", "--filename=-", "--ignore-not-found", "--timeout="+Timeout.String())
	return err
}

// replaceFile replaces a file atomically: runtimes may read it at any moment.
func replaceFile(path string, content []byte) error {
	temp := path + ".tmp"
	if err := os.WriteFile(temp, content, 0o600); err != nil {
		return err
	}
	return os.Rename(temp, path)
}
