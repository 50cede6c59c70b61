// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/capture-cni/capture-cni/deploy/fleet"
)

// completionTimeout limits the time of a request for completions, because the user waits at the prompt.
const completionTimeout = 3 * time.Second

// complete adds completion of names from the cluster to the commands. kubectl requests completions by
// executing kubectl_complete-capture_cni.
func (o *options) complete(root *cobra.Command) {
	everywhere := func([]string) (string, bool) { return metav1.NamespaceAll, true }
	namespaces := o.suggest(&corev1.NamespaceList{}, everywhere)
	nodes := o.suggest(&corev1.NodeList{}, everywhere)
	pods := o.suggest(&corev1.PodList{}, func(args []string) (string, bool) {
		namespace, _, err := o.config().Namespace()
		return namespace, err == nil && len(args) == 0
	})
	_ = root.RegisterFlagCompletionFunc("namespace", namespaces) // fails only for a flag that does not exist
	_ = root.RegisterFlagCompletionFunc("agent-namespace", namespaces)
	for _, command := range root.Commands() {
		command.ValidArgsFunction = cobra.NoFileCompletions
		switch command.Name() {
		case "check":
			command.ValidArgsFunction = nil // completes files
		case "explain", "trace", "traffic":
			command.ValidArgsFunction = pods
		case "test", "report":
			_ = command.RegisterFlagCompletionFunc("nodes", nodes)
		}
	}
}

// suggest returns a completion function for the names of a list's objects in a namespace. in returns
// this namespace, or false if there is nothing to complete. If the cluster does not answer, the
// completion function returns no names.
func (o *options) suggest(list runtime.Object, in func(args []string) (namespace string, ok bool)) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) (names []string, directive cobra.ShellCompDirective) {
		namespace, ok := in(args)
		client, err := o.connect()
		if err != nil || !ok {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
		defer cancel()
		type named interface {
			runtime.Object
			metav1.Object
		}
		err = fleet.Each(ctx, client, namespace, list, metav1.ListOptions{}, func(object named) { names = append(names, object.GetName()) })
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
