// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"path/filepath"
)

const nameServerImage = "test.local/coredns:1"

// nameServer is CoreDNS at the address that kubelets write into pods.
const nameServer = `apiVersion: v1
kind: ServiceAccount
metadata: {name: coredns, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: coredns}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: ServiceAccount, name: coredns, namespace: kube-system}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: coredns, namespace: kube-system}
data:
  Corefile: |
    .:53 {
      errors
      ready
      kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl 30
      }
    }
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: coredns, namespace: kube-system, labels: {k8s-app: kube-dns}}
spec:
  selector: {matchLabels: {k8s-app: kube-dns}}
  template:
    metadata: {labels: {k8s-app: kube-dns}}
    spec:
      serviceAccountName: coredns
      dnsPolicy: Default
      containers:
      - name: coredns
        image: ` + nameServerImage + `
        imagePullPolicy: Never
        args: [-conf, /etc/coredns/Corefile]
        readinessProbe: {httpGet: {path: /ready, port: 8181}}
        volumeMounts: [{name: configuration, mountPath: /etc/coredns}]
      volumes: [{name: configuration, configMap: {name: coredns}}]
---
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system, labels: {k8s-app: kube-dns, kubernetes.io/cluster-service: "true", kubernetes.io/name: KubeDNS}}
spec:
  clusterIP: 10.96.0.10
  selector: {k8s-app: kube-dns}
  ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
`

// StartNameServer starts CoreDNS and waits until it answers.
func (c *Cluster) StartNameServer(ctx context.Context) error {
	image := fileImage{entrypoint: "/coredns", files: map[string]string{"/coredns": filepath.Join(c.Parts, "coredns")}}
	if err := c.loadFileImage(ctx, image, nameServerImage); err != nil {
		return err
	}
	if _, err := c.Kubectl(ctx, nameServer, "apply", "--filename=-"); err != nil {
		return err
	}
	_, err := c.Kubectl(ctx, "", "--namespace=kube-system", "rollout", "status", "deployment/coredns", fmt.Sprint("--timeout=", Timeout))
	return err
}
