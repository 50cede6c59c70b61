// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/install/report"
	"github.com/capture-cni/capture-cni/plugin/record"
)

// world is a node and what acts on it. One goroutine drives it, in the virtual time of a
// synctest bubble, so that a history always has the same outcome.
type world struct {
	root, netDir, binDir, stateDir, runDir, image string

	disk          disk
	api           *kubeapi.Server
	leaseTouched  time.Time // by others
	requests      int       // except those about pods, tokens and the taint
	restSince     time.Time // of the requests that follow
	restRequests  int
	leaseRequests int // since the API server is in its state
	pods          []*pod
	spool         []record.Record
	posted        []corev1.Event
	losesAnswer   bool            // about the next new Event
	posters       map[subject]int // agents that had a notice for an Event
	registered    time.Time       // of the Node
	refused       time.Time       // the last request that the API server did not answer as it should
	apiState      string          // "ok", a status code, "half", "slow", "silent" or "away"
	runtime       container
	agent         *process
	guard         *guarding
	kernelFails   bool // at the guard's next examination
	operator      wishes
	others        map[string]string // the lists of other programs, as they wrote them
	loops         map[string]int    // how often more a program repeats its change, once a second

	nextLoop time.Time
	looked   time.Time // the last moment at which a change of another writer had to be answered
	rivalAt  int       // the write of the agent before which another program writes its list

	logs    bytes.Buffer
	failure error
	reached map[string]int
	atKill  map[string]string

	born         time.Time         // the beginning
	isRegistered bool              // there is a Node
	generation   int               // of the node's files: it grows with each change
	examined     int               // the generation that the invariants of files were checked for
	noticed      int               // the generation that the agent was told about
	signed       int               // the generation of the signatures
	signatures   map[string]string // of directories

	calledUs    bool      // at the beginning of the agent's step
	lastEvent   time.Time // of the history
	disturbed   time.Time
	calm        time.Time // since when nothing but time has happened
	slowUntil   time.Time // until when the agent may take to recover from more than another writer
	apiSince    time.Time // since when the API server is in its state
	installed   bool      // our program has been in place
	accident    bool      // another program broke ours
	ciliumTrace bool      // Cilium has renamed a file
	mayChoose   bool      // mode auto may choose a mode without the runtime's answer
}

// wishes is what the operator has asked for.
type wishes struct {
	state   string // "present", "absent", or "gone" for no agent at all
	force   bool
	mode    report.Mode
	version string
	keys    string // of the plugin's configuration
}

func (w *world) reach(what string) { w.reached[what]++ }

// disturb says that something has happened from which the agent may need minutes to recover.
func (w *world) disturb() {
	w.calm = time.Now()
	w.disturbed, w.slowUntil = w.calm, w.calm.Add(recovery)
}

// recovery is how long the agent may take: the longest pause between requests of tokens, and a check.
const recovery = 5*time.Minute + 30*time.Second + 2*time.Minute

// fail records the first invariant that does not hold.
func (w *world) fail(format string, args ...any) {
	if w.failure == nil {
		w.failure = fmt.Errorf(format, args...)
	}
}

// newWorld makes a node in an empty directory.
func newWorld(root, runtime string) *world {
	w := &world{
		root: root, netDir: root + "/net.d", binDir: root + "/bin", stateDir: root + "/state", runDir: root + "/run", image: root + "/image",
		api: kubeapi.New(), apiState: "ok", reached: map[string]int{}, others: map[string]string{}, posters: map[subject]int{}, loops: map[string]int{},
		rivalAt: -100, runtime: container{name: runtime, state: "up"}, operator: wishes{state: "gone", mode: report.Auto, version: "v1"},
	}
	w.disk.standing = map[string]syscall.Errno{}
	_ = os.RemoveAll(root)
	for _, directory := range []string{w.netDir, w.binDir, w.runDir, w.image + "/ca"} {
		w.check(os.MkdirAll(directory, 0o755))
	}
	for _, name := range []string{"v1", "v2", "broken"} {
		w.check(os.MkdirAll(w.image+"/"+name, 0o755))
		for _, file := range []string{"capture-cni", "capture-cni-lookup"} {
			w.check(os.WriteFile(w.image+"/"+name+"/"+file, []byte(version(name)), 0o755))
		}
	}
	w.check(os.WriteFile(w.image+"/ca/ca.crt", []byte("ca"), 0o644))
	for _, name := range primaries {
		w.check(os.WriteFile(w.binDir+"/"+name, []byte(program), 0o755))
	}
	w.api.SetToken("agent")
	w.api.IssueTokens(10 * time.Minute)
	w.register()
	w.disturb()
	return w
}

// check is for what can't fail in a model.
func (w *world) check(err error) {
	if err != nil {
		w.fail("the model: %v", err)
	}
}

// settle lets the agent do everything that is due.
func (w *world) settle() {
	began := time.Now()
	for range 30 {
		w.notice()
		switch a := w.agent; {
		case a == nil || w.failure != nil || time.Since(began) > time.Minute:
			return
		case !time.Now().Before(a.nextBeat):
			w.beat()
		case !time.Now().Before(a.next):
			w.step()
		default:
			return
		}
	}
	w.fail("the agent does not come to rest")
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end) && w.failure == nil; {
		next := end
		if w.agent != nil {
			next = minTime(next, minTime(w.agent.next, w.agent.nextBeat))
		}
		if w.guard != nil {
			next = minTime(next, w.guard.next)
		}
		if len(w.loops) > 0 && w.nextLoop.Before(next) {
			next = w.nextLoop
		}
		look := w.calm.Add(3 * time.Second) // when another writer's change must be answered
		if time.Now().Before(look) && look.Before(next) {
			next = look
		}
		time.Sleep(max(time.Millisecond, time.Until(next)))
		w.repeat()
		w.settle()
		w.guardPods()
		if !time.Now().Before(look) && w.looked != look {
			w.looked = look
			w.watch()
			w.examine()
		}
	}
	w.retry()
}

// repeat lets other programs repeat their changes, once a second.
func (w *world) repeat() {
	if time.Now().Before(w.nextLoop) {
		return
	}
	w.nextLoop = time.Now().Add(time.Second)
	for _, name := range slices.Sorted(maps.Keys(w.loops)) {
		if w.loops[name]--; w.loops[name] <= 0 {
			delete(w.loops, name)
		}
		w.generation++
		byName[name].do(w, 0)
	}
}
