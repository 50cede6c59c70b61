// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/capture-cni/capture-cni/deploy/fleet"
)

// completionTimeout limits a request while a person waits at the prompt.
const completionTimeout = 3 * time.Second

// complete adds completions from the cluster: kubectl asks for them by the program
// kubectl_complete-capture_cni.
func (o *options) complete(root *cobra.Command) {
	namespaces := o.suggest(func(pod *corev1.Pod) string { return pod.Namespace }, metav1.NamespaceAll)
	nodes := o.suggest(func(pod *corev1.Pod) string { return pod.Spec.NodeName }, metav1.NamespaceAll)
	pods := func(command *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		namespace, _, err := o.config().Namespace()
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return o.suggest(func(pod *corev1.Pod) string { return pod.Name }, namespace)(command, args, typed)
	}
	_ = root.RegisterFlagCompletionFunc("namespace", namespaces) // these fail for a flag that does not exist
	_ = root.RegisterFlagCompletionFunc("agent-namespace", namespaces)
	for _, command := range root.Commands() {
		command.ValidArgsFunction = cobra.NoFileCompletions
		switch command.Name() {
		case "explain", "trace":
			command.ValidArgsFunction = pods
		case "test", "report":
			_ = command.RegisterFlagCompletionFunc("nodes", nodes)
		}
	}
}

// suggest returns a field of the pods of a namespace, or of all.
func (o *options) suggest(field func(*corev1.Pod) string, namespace string) cobra.CompletionFunc {
	return func(command *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		client, err := o.connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
		defer cancel()
		found := map[string]bool{}
		err = fleet.Each(ctx, client, namespace, &corev1.PodList{}, metav1.ListOptions{}, func(pod *corev1.Pod) { found[field(pod)] = true })
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		delete(found, "")
		return slices.Sorted(maps.Keys(found)), cobra.ShellCompDirectiveNoFileComp
	}
}
