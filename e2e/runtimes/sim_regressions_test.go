// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"testing"
)

// TestRegressions plays the shortest histories that broke an invariant once.
func TestRegressions(t *testing.T) {
	root := rootOf(t, 0)
	for name, h := range map[string]history{
		"ready on CRI-O with a list that it skips": {
			"cri-o", "05-cilium.conf is written", "the operator installs mode owned", "the program cilium-cni is deleted",
		},
		"a program whose name is not synced": {
			"containerd", "10-calico.conflist is written", "the agent is killed at write 30", "the operator installs mode auto", "the power fails",
		},
		"a removed entry whose removal is not synced": {
			"cri-o", "the first list's owner changes it at write in the network directory 1", "the operator installs mode auto", "the agent restarts",
			"the agent is killed at write 5", "the operator removes capture-cni by force",
		},
		"a plain configuration is renamed": {"cri-o", "00-multus.conf is written", "the operator installs mode insert"},
		"another program's list is overwritten": {
			"cri-o", "05-cilium.conf is written", "05-cilium.conflist is written", "the operator installs mode insert",
		},
		"ready while the API server refuses the watch": {
			"containerd", "10-calico.conflist is written", "the operator installs mode auto", "the API server answers 403", "minutes pass: 3", "seconds pass: 10",
		},
		"a list's own plugin is blamed": {
			"containerd", "10-calico.conflist is written", "the operator installs mode insert", "Calico writes its list each second, times: 15", "seconds pass: 30",
		},
		"the back-off outlives the other program": {
			"containerd", "10-calico.conflist is written", "the operator installs mode insert", "seconds pass: 10",
			"an unknown program removes the entry each second, times: 40", "seconds pass: 30", "seconds pass: 30",
		},
		"a program is replaced by one that does not run": {
			"cri-o", "the operator installs mode auto", "the operator installs a release that does not run",
		},
		"the entry is removed while meshed pods run": {
			"cri-o", "00-multus.conf is written", "the operator installs mode owned", "a meshed pod starts", "the operator removes capture-cni",
		},
		"a full disk takes the credentials": {
			"containerd", "10-calico.conflist is written", "the operator installs mode insert", "seconds pass: 10",
			"the state directory's disk is full", "minutes pass: 12", "minutes pass: 12",
		},
		"removal leaves the list that Cilium has renamed": {
			"containerd",
			"10-flannel.conflist is written",
			"the operator installs mode owned",
			"Cilium renames the others' lists",
			"the operator removes capture-cni by force",
		},
		"an agent that does not know the runtime embeds another list": {
			"cri-o",
			"the operator installs mode auto",
			"10-ovn-kubernetes.conf is written",
			"the runtime is down",
			"the program calico is deleted",
			"the agent restarts",
			"Calico writes its list each second, times: 7",
			"seconds pass: 1",
		},
		"an agent that does not know the runtime removes the entry of another mode": {
			"cri-o",
			"05-cilium.conf is written",
			"the program cilium-cni is deleted",
			"10-calico.conflist is written",
			"the operator installs v2",
			"the runtime is down",
			"the operator installs mode owned",
		},
		"an agent that does not know the runtime embeds another list while the embedded one is written": {
			"cri-o",
			"10-ovn-kubernetes.conf is written",
			"the program calico is deleted",
			"the runtime is down",
			"the operator installs mode auto",
			"10-ovn-kubernetes.conf is half written",
			"10-calico.conflist is written",
		},
		"an agent that does not know the runtime embeds a list without its program, as another list hides the embedded one": {
			"cri-o",
			"the operator installs mode owned",
			"the program cilium-cni is emptied",
			"10-flannel.conflist is written",
			"the runtime is down",
			"the operator installs v2",
			"05-cilium.conf is written",
			"Calico writes its list each second, times: 15",
			"minutes pass: 3",
		},
		"a token that could not be renewed becomes a fault after the API server answers again": {
			"cri-o",
			"05-cilium.conflist is written",
			"the operator installs mode owned",
			"seconds pass: 10",
			"minutes pass: 3",
			"the API server answers 409",
			"minutes pass: 3",
			"seconds pass: 57",
			"minutes pass: 3",
		},
		"another program's write is lost": {
			"containerd", "10-calico.conflist is written", "the operator installs mode insert", "seconds pass: 10",
			"the first list's owner changes it at write in the network directory 2", "an unknown program removes the entry",
		},
		"the entry is placed without the program": {
			"containerd", "the programs' disk is full", "the operator installs mode insert", "10-calico.conflist is written",
		},
		"a runtime does not notice a drop-in, because the agent was killed": {
			"containerd", "10-calico.conflist is written", "the agent is killed at write in the network directory 6", "the operator installs mode dropin",
		},
		"mode auto is decided before the runtime answers": {
			"containerd", "10-calico.conflist is written", "the runtime is down", "the operator installs mode auto", "seconds pass: 30",
		},
		"an Event whose creation got no answer is never counted again": {
			"containerd", "10-calico.conflist is written", "the operator installs mode insert", "seconds pass: 10",
			"the answer about the next Event is lost", "refused pods start, number: 1", "seconds pass: 10", "seconds pass: 10",
		},
		"the mark of an entry is not synced": {
			"containerd", "the operator installs mode insert", "the disk fails (EIO) at write 10", "10-calico.conflist is written",
		},
		"a full disk has a new error at each check": {
			"containerd", "the programs' disk is full", "the operator installs mode auto", "the Lease is edited, and the agent rests for minutes: 9",
		},
		"the fallback hides that the state directory is not synced": {
			"containerd", "05-cilium.conflist is written", "the operator installs mode owned", "the disk fails (ENOSPC) at write 8",
			"the agent restarts", "seconds pass: 150", "minutes pass: 3",
		},
		"a full state directory is logged at each check": {
			"containerd", "00-multus.conf is written", "refused pods start, number: 1", "the state directory's disk is full",
			"the operator installs mode owned", "the operator removes capture-cni",
		},
		"a program that is empty counts as one": {
			"cri-o", "10-calico.conflist is written", "the operator installs mode owned", "the program calico is emptied",
		},
	} {
		if _, log, failure := run(t, root, h); failure != nil {
			t.Errorf("%s: %v\n%s", name, failure, log)
		}
	}
}

// temporary are the random names of temporary files.
var temporary = regexp.MustCompile(`\.capture-cni-tmp-\w+`)

// TestReplay plays histories again and again: all that is logged and reached is always the same.
func TestReplay(t *testing.T) {
	root := rootOf(t, 0)
	for number := range uint64(2) {
		h := random(rand.New(rand.NewPCG(*seed, 1<<32+number)), *length)
		var first string
		for again := range *replays {
			reached, log, failure := run(t, root, h)
			log = temporary.ReplaceAllString(log, "")
			if failure != nil {
				log += failure.Error()
			}
			log += fmt.Sprint(reached)
			if again == 0 {
				first = log
			} else if log != first {
				t.Fatalf("history %d differs at the replay %d:\n%s\n%s\n%s", number, again, h, first, log)
			}
		}
	}
}
