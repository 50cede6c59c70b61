// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
)

// Rtnl is the function that stands for the lock of the network's configuration, which all
// namespaces share: each release ends in it. Taking the lock is inlined in places.
const Rtnl = "netdev_run_todo"

// LockFunctions are functions of the kernel that take a lock of the whole machine, or wait
// for all CPUs. A kernel lacks some, or has them under other names.
var LockFunctions = []string{
	Rtnl,
	"__nf_register_net_hook", "__nf_unregister_net_hook", // nf_hook_mutex
	"nf_nat_register_fn", "nf_nat_unregister_fn", // nf_nat_proto_mutex
	"pcpu_alloc", "pcpu_alloc_noprof", // pcpu_alloc_mutex
	"xt_find_table_lock", "xt_request_find_table_lock", // the mutex of a family of xtables
	"synchronize_rcu", "synchronize_rcu_expedited", "synchronize_net", "synchronize_srcu", "rcu_barrier",
	"switch_task_namespaces", // no lock, but setns
}

// LockedVerbs are called for each pod, in this order.
var LockedVerbs = []string{"ADD", "CHECK", "DEL"}

// Locked is how often a call of the plugin reached LockFunctions, by function and caller.
type Locked struct {
	Trial
	Verb, Fault string
	Calls       map[string]int
}

// Count sums the calls of a function by all callers.
func (l Locked) Count(function string) (n int) {
	for call, times := range l.Calls {
		if name, _, _ := strings.Cut(call, " "); name == function {
			n += times
		}
	}
	return n
}

// CountLocks calls the plugin for a pod of each trial, one after the other.
func CountLocks(trials []Trial) (Run, error) {
	content, err := json.Marshal(trials)
	return Run{Name: "locks", Directory: "/", Command: []string{filepath.Join(programDirectory, "attempt"), "locks", string(content)}}, err
}

// LockedBy reads what a run of CountLocks printed.
func LockedBy(o Outcome) (results []Locked, err error) {
	for line := range strings.Lines(o.Output) {
		var result Locked
		if json.Unmarshal([]byte(line), &result) == nil {
			results = append(results, result)
		}
	}
	if o.Status != 0 || len(results) == 0 {
		return nil, fmt.Errorf("status %d: %s", o.Status, o.Output)
	}
	return results, nil
}
