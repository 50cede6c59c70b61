// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/capture-cni/capture-cni/install/report"
)

// event is something that happens to a node. Its argument is one of args.
type event struct {
	name   string
	weight int
	args   []int
	do     func(w *world, argument int)
}

// lists are those of other programs, by their file.
var lists = map[string]string{
	"10-calico.conflist":     list("k8s-pod-network", "calico", "portmap"),
	"05-cilium.conflist":     list("cbr0", "cilium-cni"),
	"10-flannel.conflist":    list("cbr0", "ptp", "portmap"),
	"10-ovn-kubernetes.conf": conf("ovn-kubernetes", "ptp"),
	"05-cilium.conf":         conf("cbr0", "cilium-cni"),
	"00-multus.conf":         conf("multus-cni-network", "ptp"),
}

// nth are which of the agent's next calls fails.
var nth = []int{1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 15, 18, 22, 26, 30}

var events = slices.Concat([]event{
	{"containerd", 0, nil, nil},
	{"cri-o", 0, nil, nil},
	{"seconds pass:", 14, []int{1, 2, 4, 10, 30, 70, 150}, func(w *world, n int) { w.pass(time.Duration(n) * time.Second) }},
	{"minutes pass:", 4, []int{3, 9}, func(w *world, n int) { w.pass(time.Duration(n) * time.Minute) }},
	{"a meshed pod starts", 14, nil, func(w *world, _ int) { w.schedule(meshed) }},
	{"another pod starts", 8, nil, func(w *world, _ int) { w.schedule(other) }},
	{"refused pods start, number:", 3, []int{1, 20}, func(w *world, n int) {
		for range n {
			w.schedule(refused)
		}
	}},
	{"the runtime passes no annotations", 2, nil, func(w *world, _ int) { w.runtime.omits = true }},
	{"the runtime passes annotations", 4, nil, func(w *world, _ int) { w.runtime.omits = false }},
	{"a process of a pod deletes its rules", 6, nil, func(w *world, _ int) { w.damage(func(n *namespace) { n.rules = nil }) }},
	{"a process of a pod changes its rules", 4, nil, func(w *world, _ int) { w.damage(func(n *namespace) { n.edit = "changed" }) }},
	{"a pod's annotations are edited", 3, nil, func(w *world, _ int) { w.editAnnotations() }},
	{"a pod's annotations are edited, and its rules deleted", 3, nil, func(w *world, _ int) {
		w.editAnnotations()
		w.damage(func(n *namespace) { n.rules = nil })
	}},
	{"the guard restarts", 2, nil, func(w *world, _ int) { w.stopGuard() }},
	{"the kernel fails at the guard's next examination", 2, nil, func(w *world, _ int) { w.kernelFails = true }},
	{"all pods end", 3, nil, func(w *world, _ int) { w.endPods() }},
	{"the operator removes capture-cni", 2, nil, func(w *world, _ int) { w.operate(func(o *wishes) { o.state, o.force = "absent", false }) }},
	{"the operator removes capture-cni by force", 2, nil, func(w *world, _ int) { w.operate(func(o *wishes) { o.state, o.force = "absent", true }) }},
	{"the operator deletes the agents", 1, nil, func(w *world, _ int) { w.operate(func(o *wishes) { o.state = "gone" }) }},
	{"the operator changes values:", 2, []int{1, 2}, func(w *world, n int) {
		w.operate(func(o *wishes) { o.keys = []string{"", `{"logLevel":"debug"}`, `{"lookupTimeout":"20s"}`}[n] })
	}},
	{"the operator installs v1", 2, nil, func(w *world, _ int) { w.operate(func(o *wishes) { o.state, o.version = "present", "v1" }) }},
	{"the operator installs v2", 3, nil, func(w *world, _ int) { w.operate(func(o *wishes) { o.state, o.version = "present", "v2" }) }},
	{"the operator installs a release that does not run", 3, nil, func(w *world, _ int) { w.operate(func(o *wishes) { o.state, o.version = "present", "broken" }) }},
	{"the agent restarts", 3, nil, func(w *world, _ int) { w.stopAgent(); w.disturb() }},
	{"the agent is killed at write", 8, nth, func(w *world, n int) { w.kill(n, w.root) }},
	{"the agent is killed at write in the network directory", 12, nth[:8], func(w *world, n int) { w.kill(n, w.netDir) }},
	{"the agent is killed at write one after a rename in the network directory", 6, nil, func(w *world, _ int) {
		w.kill(0, w.root)
		w.disk.killRenamed = true
	}},
	{"the power fails", 2, nil, func(w *world, _ int) { w.reboot() }},
	{"the power fails at write", 5, nth, func(w *world, n int) { w.kill(n, w.root); w.disk.powerFails = true }},
	{"the disk fails (EIO) at write", 4, nth, func(w *world, n int) { w.disk.writes = failing{n, syscall.EIO}; w.wake() }},
	{"the disk fails (EIO) at the next new directory", 3, nil, func(w *world, _ int) { w.disk.mkdirFails = true }},
	{"the disk fails (EIO) at read", 4, nth, func(w *world, n int) { w.disk.reads = failing{n, syscall.EIO}; w.wake() }},
	{"the disk fails (ENOSPC) at write", 2, nth, func(w *world, n int) { w.disk.writes = failing{n, syscall.ENOSPC}; w.wake() }},
	{"the state directory's disk is full", 2, nil, func(w *world, _ int) { w.fault(w.stateDir, syscall.ENOSPC) }},
	{"the state directory is read-only", 1, nil, func(w *world, _ int) { w.fault(w.stateDir, syscall.EROFS) }},
	{"the network directory's disk is full", 2, nil, func(w *world, _ int) { w.fault(w.netDir, syscall.ENOSPC) }},
	{"the programs' disk is full", 5, nil, func(w *world, _ int) { w.fault(w.binDir, syscall.ENOSPC) }},
	{"the disks work again", 8, nil, func(w *world, _ int) { clear(w.disk.standing); w.disturb() }},
	{"the API server answers", 16, nil, func(w *world, _ int) { w.setAPI("ok") }},
	{"the API server is away", 2, nil, func(w *world, _ int) { w.setAPI("away") }},
	{"the API server is slow", 1, nil, func(w *world, _ int) { w.setAPI("slow") }},
	{"the API server is silent", 1, nil, func(w *world, _ int) { w.setAPI("silent") }},
	{"the API server sends half answers", 2, nil, func(w *world, _ int) { w.setAPI("half") }},
	{"the API server has new keys", 2, nil, func(w *world, _ int) { w.api.ChangeKeys(); w.disturb() }},
	{"the Node is deleted", 1, nil, func(w *world, _ int) { w.api.DeleteNode("node-1"); w.isRegistered = false; w.disturb() }},
	{"the answer about the next Event is lost", 3, nil, func(w *world, _ int) { w.losesAnswer = true }},
	{"the Lease is edited, and the agent rests for minutes:", 2, []int{9}, func(w *world, n int) {
		w.editLease()
		w.pass(time.Duration(n) * time.Minute)
	}},
	{"the Node is registered", 2, nil, func(w *world, _ int) { w.register(); w.disturb() }},
	{"the runtime is down", 4, nil, func(w *world, _ int) { w.runtime.state = "down"; w.disturb() }},
	{"the runtime is silent", 1, nil, func(w *world, _ int) { w.runtime.state = "silent"; w.disturb() }},
	{"the runtime answers", 9, nil, func(w *world, _ int) { w.restart() }},
	{"the runtime loads late, by seconds:", 2, []int{1, 8, 40}, func(w *world, n int) { w.runtime.late = time.Duration(n) * time.Second; w.disturb() }},
	{"the runtime loads at once", 5, nil, func(w *world, _ int) { w.runtime.late = 0; w.disturb() }},
	{"the first list's owner changes it at write in the network directory", 4, nth[:8], func(w *world, n int) { w.rivalAt = n; w.wake() }},
	{"Cilium renames the others' lists", 3, nil, func(w *world, _ int) { w.renameOthers() }},
	{"an unknown program removes the entry", 8, nil, func(w *world, _ int) { w.removeEntry() }},
	{"an unknown program removes the entry each second, times:", 6, []int{15, 40}, func(w *world, n int) { w.loop("an unknown program removes the entry", n) }},
	{"Calico writes its list each second, times:", 4, []int{15, 40}, func(w *world, n int) { w.loop("10-calico.conflist is written", n) }},
	{"the network directory is emptied", 1, nil, func(w *world, _ int) { w.emptyNet() }},
	{"the drop-ins are deleted", 5, nil, func(w *world, _ int) {
		for _, name := range []string{"k8s-pod-network", "cbr0"} {
			w.check(os.RemoveAll(w.netDir + "/" + name))
		}
		w.disturb()
	}},
	{"our program is deleted", 1, nil, func(w *world, _ int) { w.breakOurs(func(path string) error { return os.Remove(path) }) }},
	{"our program is emptied", 1, nil, func(w *world, _ int) { w.breakOurs(func(path string) error { return os.Truncate(path, 0) }) }},
}, modeEvents(), codeEvents(), fileEvents(), programEvents())

func modeEvents() (events []event) {
	for _, mode := range []report.Mode{report.Auto, report.Insert, report.DropIn, report.Owned} {
		events = append(events, event{"the operator installs mode " + string(mode), 3, nil, func(w *world, _ int) {
			w.operate(func(o *wishes) { o.state, o.mode = "present", mode })
		}})
	}
	return events
}

func codeEvents() (events []event) {
	for _, code := range []string{"401", "403", "404", "409", "410", "429", "500", "503"} {
		weight := 1
		if code < "404" { // which refuse the agent
			weight = 3
		}
		events = append(events, event{"the API server answers " + code, weight, nil, func(w *world, _ int) { w.setAPI(code) }})
	}
	return events
}

func fileEvents() (events []event) {
	for _, name := range []string{"10-calico.conflist", "05-cilium.conflist", "10-flannel.conflist", "10-ovn-kubernetes.conf", "05-cilium.conf", "00-multus.conf"} {
		weight := 2
		if filepath.Ext(name) == ".conf" {
			weight = 1
		}
		events = append(events,
			event{name + " is written", weight, nil, func(w *world, _ int) { w.write(name, lists[name]) }},
			event{name + " is half written", 1, nil, func(w *world, _ int) { w.write(name, lists[name][:len(lists[name])/2]) }},
			event{name + " is deleted", 1, nil, func(w *world, _ int) { w.deleteList(name) }})
	}
	return events
}

func programEvents() (events []event) {
	for _, name := range primaries {
		events = append(events,
			event{"the program " + name + " is deleted", 1, nil, func(w *world, _ int) { _ = os.Remove(w.binDir + "/" + name); w.disturb() }},
			event{"the program " + name + " is emptied", 1, nil, func(w *world, _ int) { _ = os.Truncate(w.binDir+"/"+name, 0); w.disturb() }},
			event{"the program " + name + " is installed", 2, nil, func(w *world, _ int) {
				w.check(os.WriteFile(w.binDir+"/"+name, []byte(program), 0o755))
				w.disturb()
			}})
	}
	return events
}

// byName has all events. It is made late, because events refer to others.
var byName map[string]event

func init() {
	byName = map[string]event{}
	for _, e := range events {
		byName[e.name] = e
	}
}

func (w *world) setAPI(state string) {
	if state != w.apiState {
		w.apiState, w.apiSince, w.leaseRequests = state, time.Now(), 0
		w.disturb()
	}
}

func (w *world) fault(directory string, fault syscall.Errno) {
	w.disk.standing[directory+"/"] = fault
	w.disturb()
	w.wake()
}

// kill ends the agent at one of its next writes.
func (w *world) kill(at int, below string) {
	w.disk.killAt, w.disk.killBelow, w.disk.powerFails = at, below, false
	w.wake()
}

// wake lets the agent check the node at once.
func (w *world) wake() {
	if w.agent != nil {
		w.agent.Changed(w.binDir)
		w.agent.next = time.Now()
	}
}

// operate lets the operator change a wish, which replaces the agent.
func (w *world) operate(change func(*wishes)) {
	change(&w.operator)
	w.stopAgent()
	w.stopGuard()
	w.disturb()
}

// reboot ends everything on the node, and empties the run directory.
func (w *world) reboot() {
	w.stopAgent()
	w.stopGuard()
	w.cutPower()
	w.check(os.RemoveAll(w.runDir))
	w.check(os.Mkdir(w.runDir, 0o755))
	for _, p := range w.pods { // the kubelet starts them again
		p.netns, p.tries = nil, 0
	}
	w.runtime.pods, w.runtime.seen, w.installed = nil, "", false
	w.disturb()
}

// touch says that another program has written a list.
func (w *world) touch() {
	w.calm = time.Now()
	w.runtime.events++
}

func (w *world) loop(name string, times int) {
	w.loops[name], w.nextLoop = times, time.Now()
	w.touch()
}

func (w *world) write(name, content string) {
	w.check(os.WriteFile(w.netDir+"/"+name, []byte(content), 0o644))
	if before, there := w.others[name]; !there || before != content {
		w.disturb() // the runtime may load another list, or a list again
	}
	w.others[name] = content
	w.mayChoose = w.mayChoose || filepath.Ext(name) == ".conf" // which forbids drop-ins
	w.touch()
}

// rewrite lets the owner of the first list write another content.
func (w *world) rewrite() {
	name, content := "10-calico.conflist", lists["10-calico.conflist"]
	for _, other := range slices.Sorted(maps.Keys(w.others)) {
		if whole, ok := lists[other]; ok && filepath.Ext(other) == ".conflist" {
			name, content = other, whole
			break
		}
	}
	if !strings.Contains(w.others[name], "revision") {
		content = strings.Replace(content, "{", `{"revision": 2, `, 1)
	}
	w.write(name, content)
}

func (w *world) deleteList(name string) {
	_ = os.Remove(w.netDir + "/" + name)
	delete(w.others, name)
	w.touch()
	w.disturb()
}

func (w *world) emptyNet() {
	entries, err := os.ReadDir(w.netDir)
	w.check(err)
	for _, entry := range entries {
		w.check(os.RemoveAll(w.netDir + "/" + entry.Name()))
	}
	clear(w.others)
	w.touch()
	w.disturb()
}

// removeEntry rewrites each list with our entry as jq would: without the entry.
func (w *world) removeEntry() {
	for name := range w.others {
		text, err := os.ReadFile(w.netDir + "/" + name)
		if without, ours := withoutOurs(string(text)); err == nil && ours {
			w.check(os.WriteFile(w.netDir+"/"+name, []byte(without), 0o644))
			w.others[name] = without
		}
	}
	w.touch()
}

// renameOthers is cni.exclusive of Cilium.
func (w *world) renameOthers() {
	entries, err := os.ReadDir(w.netDir)
	w.check(err)
	for _, entry := range entries {
		name := entry.Name()
		if entry.IsDir() || strings.HasPrefix(name, "05-cilium") || !slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(name)) {
			continue
		}
		w.check(os.Rename(w.netDir+"/"+name, w.netDir+"/"+name+".cilium_bak"))
		w.ciliumTrace = true
		if content, ok := w.others[name]; ok {
			delete(w.others, name)
			w.others[name+".cilium_bak"] = content
		}
	}
	w.touch()
	w.disturb()
}

func (w *world) breakOurs(how func(path string) error) {
	if how(w.binDir+"/capture-cni") == nil {
		w.accident = true
	}
	w.disturb()
}

// restart starts the runtime, which loads its directory then.
func (w *world) restart() {
	if w.runtime.state != "up" {
		w.runtime.state, w.runtime.seen = "up", ""
	}
	w.disturb()
}
