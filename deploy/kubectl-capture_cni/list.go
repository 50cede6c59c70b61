// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/report"
)

// selection says which pods to list. If no field is set, the command lists all pods that are not
// captured as desired.
type selection struct{ uncaptured, exempt, outdated, istioInit bool }

func listCommand(o *options) *cobra.Command {
	var s selection
	var all bool
	command := &cobra.Command{
		Use:   "list",
		Short: "List the pods of the mesh that are not captured as desired",
		Long: `List the pods of the mesh that are not captured as desired, with their states from
the agents' Leases and the API server, and the next step for each. With --namespace,
those of one namespace. With -o wide, the version of each pod's rules. The exit status
is 0 also if there are any.

It reads the same as status, and nothing on the nodes.`,
		Args: cobra.NoArgs,
		RunE: o.run(func(command *cobra.Command, client *fleet.Client, _ []string) error {
			f, err := fleet.Read(command.Context(), client, o.agentNamespace)
			if err != nil {
				return err
			}
			namespace := o.overrides.Context.Namespace
			if all {
				namespace = ""
			}
			list := podList{f.Unknown, f.Notes, s.of(f.Pods, namespace)}
			return write(o, command.OutOrStdout(), list, outcome(true, len(f.Unknown)), o.writeList)
		}),
	}
	flags := command.Flags()
	flags.BoolVarP(&all, "all-namespaces", "A", false, "pods of all namespaces, as without --namespace")
	flags.BoolVar(&s.uncaptured, "uncaptured", false,
		"pods that are uncaptured, injected_later, drifted, obstructed, unknown, not examined or not started")
	flags.BoolVar(&s.exempt, "exempt", false, "pods that are exempt from capture, with the cause")
	flags.BoolVar(&s.outdated, "outdated", false, "pods with rules of another version or configuration")
	flags.BoolVar(&s.istioInit, "istio-init", false, "pods that still have an init container istio-init")
	return command
}

// of returns the selected pods in a namespace, or in all namespaces if namespace is "".
func (s selection) of(pods []fleet.Pod, namespace string) []fleet.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p fleet.Pod) bool {
		return !s.has(p) || namespace != "" && p.Namespace != namespace
	})
}

func (s selection) has(p fleet.Pod) bool {
	if s == (selection{}) {
		return p.State != report.Captured
	}
	return s.uncaptured && p.State.IsMissing() || s.exempt && p.State == report.Exempt ||
		s.outdated && p.State == report.Outdated || s.istioInit && p.IstioInit
}

type podList struct {
	Unknown []string    `json:"unknown,omitempty"`
	Notes   []string    `json:"notes"`
	Pods    []fleet.Pod `json:"pods"`
}

func (o *options) writeList(out io.Writer, list podList) {
	if len(list.Pods) == 0 {
		fmt.Fprintln(out, "No pods found.")
	}
	writePods(out, groups(list.Pods, func(p fleet.Pod) string { return p.Namespace + "/" + p.Name }), o.output == "wide")
	writeNotes(out, list.Unknown, list.Notes)
	writeCodesPage(out, len(list.Pods)+len(list.Unknown)+len(list.Notes) > 0)
}

// writePods writes a table of pods. With wide, the table also contains the version of each pod's rules.
func writePods(out io.Writer, pods []group[fleet.Pod], wide bool) {
	rows := table{header: []string{"NAMESPACE", "POD", "MESH", "NODE", "STATE", "CAUSE"}}
	if wide {
		rows.header = slices.Insert(rows.header, 5, "RULES")
	}
	for _, alike := range pods {
		pod, node := alike[0], alike[0].Node
		nodes := map[string]bool{}
		for _, one := range alike {
			nodes[one.Node] = true
		}
		if len(nodes) > 1 {
			node = fmt.Sprintf("%d nodes", len(nodes))
		}
		cells := []string{pod.Namespace, pod.Name + alike.more(), string(pod.Mesh), node, string(pod.State), causeOf(pod)}
		if wide {
			cells = slices.Insert(cells, 5, strings.TrimPrefix(fmt.Sprint("v", pod.Rules), "v0"))
		}
		rows.add(cells...)
		rows.next(pod.Namespace+"/"+pod.Name, pod.Next)
	}
	rows.writeBelow(out)
}
