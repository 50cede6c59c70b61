// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"strings"

	"github.com/capture-cni/capture-cni/deploy/fleet"
)

// kinds maps the resource names that kubectl accepts to Pod or to the kind of a pod's owner.
var kinds = map[string]string{
	"po": "Pod", "pod": "Pod", "pods": "Pod",
	"deploy": "Deployment", "deployment": "Deployment", "deployments": "Deployment", "deployment.apps": "Deployment",
	"rs": "ReplicaSet", "replicaset": "ReplicaSet", "replicasets": "ReplicaSet", "replicaset.apps": "ReplicaSet",
	"sts": "StatefulSet", "statefulset": "StatefulSet", "statefulsets": "StatefulSet", "statefulset.apps": "StatefulSet",
	"ds": "DaemonSet", "daemonset": "DaemonSet", "daemonsets": "DaemonSet", "daemonset.apps": "DaemonSet",
	"job": "Job", "jobs": "Job", "job.batch": "Job",
}

// podOf returns the pod that an argument names. The argument is NAMESPACE/POD, or one of these forms in
// the namespace of --namespace or of kubectl's context: POD, pod/POD, or KIND/NAME of the pod's owner.
func (o *options) podOf(ctx context.Context, client *fleet.Client, argument string) (namespace, name string, err error) {
	namespace, _, err = o.config().Namespace()
	if err != nil {
		return "", "", fmt.Errorf("reading the namespace: %w", err)
	}
	prefix, name, slashed := strings.Cut(argument, "/")
	if !slashed {
		prefix, name = "pod", argument
	}
	if prefix == "" || name == "" || strings.Contains(name, "/") {
		return "", "", fmt.Errorf("%q: expected POD, NAMESPACE/POD, pod/POD or an owner, such as deploy/NAME", argument)
	}
	switch kind := kinds[strings.ToLower(prefix)]; kind {
	case "":
		return prefix, name, nil
	case "Pod":
		return namespace, name, nil
	default:
		name, err = client.PodOwnedBy(ctx, namespace, kind, name)
		return namespace, name, err
	}
}

// resolveService returns the destination of a packet as an address and a port. If the argument to names
// a Service, it reads the Service's address.
func resolveService(ctx context.Context, client *fleet.Client, namespace, to string) (string, error) {
	kind, rest, _ := strings.Cut(to, "/")
	if kind != "svc" && kind != "service" {
		return to, nil
	}
	host, port, err := net.SplitHostPort(rest)
	if err != nil {
		return "", fmt.Errorf("--to is %q: expected svc/NAME:PORT, or svc/NAME.NAMESPACE:PORT", to)
	}
	name, of, isGiven := strings.Cut(host, ".")
	if isGiven {
		namespace = of
	}
	address, number, err := client.ServiceAddress(ctx, namespace, name, port)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(address, number), nil
}
