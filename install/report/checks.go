// SPDX-License-Identifier: Apache-2.0

package report

import "fmt"

// The checks in this file belong to precheck, which examines a cluster, and to preflight, which
// examines a node. Both use the same conditions and texts.

// FixExclusive is the next step if Cilium removes other plugins' entries.
const FixExclusive = "set cni.exclusive=false in Cilium's values, or use --mode dropin"

// exclusive maps a mode to Cilium's effect on the entry, and to the next step.
var exclusive = map[Mode][2]string{
	Owned:  {"also renames the agent's list, and pods start uncaptured", FixExclusive},
	Insert: {"also removes the entry from its own list, and pods start uncaptured", FixExclusive},
	Auto: {
		"removes entries from its own list, and pods start uncaptured unless the agent chooses mode dropin (containerd 2.1)",
		"set cni.exclusive=false in Cilium's values or, with CRI-O 1.33, use --mode dropin",
	},
}

// CheckExclusive returns the findings that Cilium's cni.exclusive causes in a mode. seen says how the
// setting was detected. chooses says whether mode auto is known to choose dropin on all nodes, whose
// file Cilium does not remove. cannot says whether it is known not to choose dropin on a node.
func CheckExclusive(mode Mode, seen string, chooses, cannot bool) Findings {
	does := exclusive[mode]
	one := Finding{CiliumExclusive, Problem, "", seen + ": with cni.exclusive, Cilium " + does[0], does[1]}
	switch {
	case does[0] == "" || mode == Auto && chooses:
		return nil
	case mode == Auto && !cannot:
		one.Severity, one.Next = Note, one.Next+" unless the agent chooses mode dropin, whose file Cilium leaves alone"
	}
	return Findings{one}
}

// Data planes that choose a Service's backend when a process connects, and the settings that prevent
// that for pods.
var (
	Cilium = balancer{"Cilium", "set socketLB.hostNamespaceOnly=true in Cilium's values"}
	Calico = balancer{"Calico's eBPF data plane", "set bpfConnectTimeLoadBalancing: Disabled in Calico's FelixConfiguration"}
)

type balancer struct{ name, fix string }

// CheckSockets returns the finding for a data plane that balances connections at pods' sockets. If
// certain is false, the data plane may do so. seen says how it was detected.
func CheckSockets(by balancer, seen string, certain bool) Finding {
	does, next := "balances", by.fix
	if !certain {
		does, next = "may balance", by.fix+", unless it is set"
	}
	return Finding{
		Code: SocketBalancing, Severity: Note, Next: next, Reason: fmt.Sprintf("%s %s connections at the sockets of pods (%s): "+
			"a sidecar then sees the address of a Service's backend, so that its routes and policies for the Service do not apply",
			by.name, does, seen),
	}
}

// CheckRuntime returns findings about features that a mode uses and the runtime lacks.
func CheckRuntime(runtime Runtime, mode Mode) (found Findings) {
	passes, known := runtime.PassesAnnotations()
	switch {
	case !known:
		return Findings{{
			Code: RuntimeUnknown, Severity: Problem, Reason: "the runtime is neither containerd nor CRI-O", Next: "use containerd or CRI-O",
		}}
	case mode == DropIn && runtime.IgnoresDropIns():
		found = append(found, Finding{
			Code: NoDropIns, Severity: Problem, Next: "use --mode insert",
			Reason: fmt.Sprintf("%s %s loads no drop-in", runtime.Name, runtime.Version),
		})
	}
	if !passes && !mode.UnderMultus() {
		found = append(found, Finding{
			Code: AnnotationsMissing, Severity: Note, Next: "upgrade the runtime, if these lookups cost too many requests",
			Reason: "the runtime passes no annotations (containerd 1.5 and CRI-O 1.29 do), so pods outside the mesh are looked up, too",
		})
	}
	return found
}
