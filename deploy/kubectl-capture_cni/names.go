// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"strings"

	"github.com/capture-cni/capture-cni/deploy/fleet"
)

// kinds are those that own pods, by the names that kubectl has for them.
var kinds = map[string]string{
	"po": "Pod", "pod": "Pod", "pods": "Pod",
	"deploy": "Deployment", "deployment": "Deployment", "deployments": "Deployment", "deployment.apps": "Deployment",
	"rs": "ReplicaSet", "replicaset": "ReplicaSet", "replicasets": "ReplicaSet", "replicaset.apps": "ReplicaSet",
	"sts": "StatefulSet", "statefulset": "StatefulSet", "statefulsets": "StatefulSet", "statefulset.apps": "StatefulSet",
	"ds": "DaemonSet", "daemonset": "DaemonSet", "daemonsets": "DaemonSet", "daemonset.apps": "DaemonSet",
	"job": "Job", "jobs": "Job", "job.batch": "Job",
}

// podOf returns the pod that an argument names: POD, pod/POD or KIND/NAME of what owns it,
// in the namespace of --namespace or of the context, or NAMESPACE/POD.
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
		return "", "", fmt.Errorf("%q: expected POD, NAMESPACE/POD, pod/POD or deploy/NAME", argument)
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

// resolveService returns a packet's destination in which a Service has become its address.
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
