// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

var (
	duration = flag.Duration("histories", 5*time.Second, "how long histories are searched for one that breaks an invariant")
	length   = flag.Int("length", 40, "events of a history")
	workers  = flag.Int("workers", 2, "histories at a time")
	replays  = flag.Int("replays", 5, "how often a history is repeated, to compare")
)

// history is a list of events, each with its argument.
type history []string

// String returns the history in the form of a row of TestRegressions.
func (h history) String() string {
	var text strings.Builder
	for _, line := range h {
		fmt.Fprintf(&text, "\t%q,\n", line)
	}
	return text.String()
}

// random makes a history. Each history has a few kinds of events, of which some are frequent, so that
// faults do not hide one another. Events that matter only together mostly follow one another.
func random(r *rand.Rand, length int) history {
	h := history{pick(r, "containerd", "cri-o"), pick(r, slices.Sorted(maps.Keys(lists))...) + " is written"}
	if r.IntN(2) == 0 { // a node may boot with a fault
		h = append(h, draw(r, of(event.lasts)).with(r))
	}
	share := pick(r, 1, 1, 2, 4, 8) // in eighths, of the kinds of events
	pause := pick(r, 0, 1, 4)       // in eighths, of the events that time follows
	first := len(h) + pick(r, 0, 0, 1, 3, 5)
	length = min(length, first+pick(r, 2, 4, 8, 16, length)) // what follows a fault may hide it
	kinds := of(func(e event) bool { return 1+r.IntN(8) <= share || e.isTime() })
	for i := range kinds {
		kinds[i].weight *= pick(r, 1, 1, 1, 6)
	}
	for isInstalled := false; len(h) < length; {
		if len(h) >= first && !isInstalled {
			h, isInstalled = append(h, "the operator installs mode "+pick(r, "auto", "insert", "dropin", "owned")), true
		}
		e := draw(r, kinds)
		h = append(h, e.with(r))
		switch {
		case e.waits() && r.IntN(4) > 0:
			h = append(h, draw(r, of(event.causesWrites)).with(r))
			if isInstalled && r.IntN(4) == 0 {
				return h
			}
		case e.repeats() || r.IntN(8) < pause:
			h = append(h, draw(r, of(event.isTime)).with(r))
		}
	}
	return h
}

// of returns the events of a kind.
func of(isKind func(event) bool) []event {
	return slices.DeleteFunc(slices.Clone(events), func(e event) bool { return !isKind(e) })
}

// draw chooses an event by the weights.
func draw(r *rand.Rand, of []event) event {
	total := 0
	for _, e := range of {
		total += e.weight
	}
	chosen := r.IntN(total)
	return of[slices.IndexFunc(of, func(e event) bool { chosen -= e.weight; return chosen < 0 })]
}

func (e event) isTime() bool  { return strings.HasSuffix(e.name, " pass:") }
func (e event) repeats() bool { return strings.HasSuffix(e.name, " times:") }

// lasts reports whether the event is a fault that lasts.
func (e event) lasts() bool {
	return strings.HasPrefix(e.name, "the runtime ") || strings.HasPrefix(e.name, "the API server ") || strings.HasSuffix(e.name, "disk is full")
}

// waits reports whether the event waits for the agent's next operations on files.
func (e event) waits() bool {
	return strings.Contains(e.name, " at write") || strings.Contains(e.name, " at read")
}

// causesWrites reports whether the agent mostly answers the event with writes.
func (e event) causesWrites() bool {
	return strings.HasPrefix(e.name, "the operator ") || strings.HasPrefix(e.name, "our program ") || e.name == "the drop-ins are deleted" ||
		e.name == "an unknown program removes the entry" || strings.HasSuffix(e.name, ".conflist is written")
}

func (e event) with(r *rand.Rand) string {
	if e.args == nil {
		return e.name
	}
	return fmt.Sprint(e.name, " ", pick(r, e.args...))
}

// parse returns an event and its argument.
func parse(line string) (e event, argument int) {
	if e, ok := byName[line]; ok {
		return e, 0
	}
	last := strings.LastIndexByte(line, ' ')
	argument, _ = strconv.Atoi(line[last+1:])
	return byName[line[:last]], argument
}

// run plays a history, and returns the first invariant that does not hold.
func run(t *testing.T, root string, h history) (reached map[string]int, log string, failure error) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		w := newWorld(root, h[0])
		w.born = time.Now()
		defer w.stopAgent()
		defer w.stopGuard()
		defer func() {
			if fault := recover(); fault != nil {
				w.fail("panic: %v", fault)
			}
			failure, reached, log = w.failure, w.reached, w.logs.String()
		}()
		for _, line := range h[1:] {
			e, argument := parse(line)
			if e.do == nil {
				w.fail("no event %q", line)
			}
			time.Sleep(time.Millisecond)
			w.reach(e.name)
			w.generation++
			w.lastEvent = time.Now()
			e.do(w, argument)
			w.play()
			if w.failure != nil {
				return
			}
		}
		w.heal()
	})
	return reached, log, failure
}

// play lets the node answer an event.
func (w *world) play() {
	for range 3 { // an agent that was killed starts again
		if w.agent == nil && w.operator.state != "gone" {
			w.startAgent()
		}
		w.settle()
		if w.agent != nil || w.operator.state == "gone" {
			break
		}
	}
	w.startGuard()
	w.guardPods()
	if w.agent != nil {
		w.postEvents()
	}
	w.watch()
	w.examine()
}

// heal ends all faults, after which the node must reach its desired state.
func (w *world) heal() {
	maps.DeleteFunc(w.disk.standing, w.mustStop)
	clear(w.loops)
	w.disk.writes, w.disk.reads, w.disk.killAt, w.disk.killRenamed, w.disk.mkdirFails, w.rivalAt = failing{}, failing{}, 0, false, false, -100
	w.setAPI("ok")
	w.runtime.late = 0
	w.restart()
	if w.operator.version == "broken" {
		w.operate(func(o *wishes) { o.version = "v1" })
	}
	w.register()
	for _, name := range primaries {
		w.check(os.WriteFile(w.binDir+"/"+name, []byte(program), 0o755))
	}
	for name, written := range w.others {
		if whole, ok := lists[name]; ok && !json.Valid([]byte(written)) {
			w.write(name, whole)
		}
	}
	w.generation++
	w.lastEvent = time.Now()
	w.disturb()
	w.play()
	for wait := 10 * time.Second; !w.slowUntil.IsZero() && wait < recovery && w.failure == nil; wait *= 2 {
		w.pass(wait)
		w.play()
	}
	w.schedule(meshed)
	w.schedule(other)
	for _, p := range w.pods {
		if p.netns == nil && p.kind != refused && w.agent != nil && w.agent.state == "present" && w.isDue() {
			w.fail("%s never starts", p.kind)
		}
	}
	if slices.ContainsFunc(w.pods, func(p *pod) bool { return p.kind == meshed && p.netns != nil && !(judged{p.netns, w, p}).isCaptured() }) {
		w.pass(repairTime + time.Minute)
		w.examine()
	}
	w.examineLog()
	if w.agent != nil && w.unsynced() != "" {
		w.pass(time.Minute) // until the agent reconciles the node again
		if path := w.unsynced(); path != "" {
			w.fail("a power cut would undo what was written to %s", path)
		}
	}
}

// shrink removes events as long as an invariant does not hold, and makes arguments small.
func shrink(h history, fails func(history) bool) history {
	for size := len(h) / 2; size > 0; {
		removed := false
		for at := 1; at+size <= len(h); {
			if shorter := slices.Delete(slices.Clone(h), at, at+size); fails(shorter) {
				h, removed = shorter, true
			} else {
				at += size
			}
		}
		if !removed || size > len(h)/2 {
			size /= 2
		}
	}
	for at := 1; at < len(h); at++ {
		e, argument := parse(h[at])
		for _, smaller := range e.args {
			simpler := slices.Clone(h)
			simpler[at] = fmt.Sprint(e.name, " ", smaller)
			if smaller < argument && fails(simpler) {
				h = simpler
				break
			}
		}
	}
	return h
}

// kindOf returns what failures of one kind have in common.
func kindOf(failure error) string {
	kind := failure.Error()
	kind = kind[strings.LastIndex(kind[:min(len(kind), 30)], ": ")+1:]
	return kind[:min(len(kind), 40)]
}

// rootOf makes an empty directory of a worker, in memory, next to a socket that serves CRI-O's
// configuration. The socket is outside of the histories' virtual time.
func rootOf(t *testing.T, worker int) string {
	t.Helper()
	root, err := os.MkdirTemp("/dev/shm", fmt.Sprintf("h%d-", worker))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	listener, err := net.Listen("unix", root+".sock")
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("[crio.network]\nnetwork_dir = %q\nplugin_dirs = [%q]\n", root+"/net.d", root+"/bin")
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })}
	go func() { _ = server.Serve(listener) }() // until Close
	t.Cleanup(func() { _ = server.Close() })
	return root
}

// TestHistories searches histories, in which one seed decides what happens, for one that breaks an
// invariant, and prints the shortest that it finds.
func TestHistories(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // memory for speed
	var mu sync.Mutex
	var played int
	kinds := map[string]bool{}
	all := map[string]int{}
	began := time.Now()
	t.Run("all", func(t *testing.T) {
		for worker := range *workers {
			root := rootOf(t, worker)
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				for number := uint64(worker); time.Since(began) < *duration; number += uint64(*workers) {
					h := random(rand.New(rand.NewPCG(*seed, number)), *length)
					reached, _, failure := run(t, root, h)
					mu.Lock()
					played++
					for what, n := range reached {
						all[what] += n
					}
					isNew := failure != nil && !kinds[kindOf(failure)]
					if failure != nil {
						kinds[kindOf(failure)] = true
					}
					mu.Unlock()
					if isNew {
						same := func(h history) bool {
							_, _, again := run(t, root, h)
							isSame := again != nil && kindOf(again) == kindOf(failure)
							if isSame {
								failure = again
							}
							return isSame
						}
						shortest := shrink(h, same)
						_, log, _ := run(t, root, shortest)
						t.Errorf("history %[2]d of -seed %[1]d (make test SEED=%[1]d), after %[3]s: %[4]v\nThis row of TestRegressions repeats it:\n%[5]s\n%[6]s", *seed, number, time.Since(began).Round(time.Second), failure, shortest, log)
					}
				}
			})
		}
	})
	var used unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &used)
	t.Logf("seed %d: %d histories of %d events, %d steps in %s, with %d s of processor time", *seed, played, *length, all["a step of the agent"], time.Since(began).Round(time.Second), used.Utime.Sec+used.Stime.Sec)
	for _, what := range slices.Sorted(maps.Keys(all)) {
		t.Logf("reached %d times: %s", all[what], what)
	}
	for _, what := range mustReach() {
		if all[what] == 0 && *duration >= longRun {
			t.Errorf("no history reached: %s", what)
		}
	}
}

// longRun is how long a search takes that reaches everything.
const longRun = 2 * time.Minute

// mustReach returns what a long search must have met: each event, each path of a fault, and what
// follows from them.
func mustReach() (all []string) {
	for _, e := range events {
		if e.weight > 0 {
			all = append(all, e.name)
		}
	}
	for _, operation := range []string{"create", "write", "sync", "rename", "syncdir", "remove", "mkdir"} {
		all = append(all, "kill at "+operation, syscall.EIO.Error()+" at "+operation)
	}
	for _, operation := range []string{"open", "opendir", "list"} {
		all = append(all, syscall.EIO.Error()+" at "+operation)
	}
	for _, part := range []string{"binary", "credentials", "pods", "entry", "runtime"} {
		all = append(all, "not ready: "+part)
	}
	for _, result := range []outcome{uncaptured, failed} {
		all = append(all, string(meshed)+": "+string(result), string(other)+": "+string(result), string(refused)+": "+string(result))
	}
	return append(all, "the Lease is written", "the Lease of an agent", "a meshed pod: captured", "the agent answers about a pod",
		"the API server answers about a pod", "an Event: CaptureFailed", "an Event: CaptureNote", "an Event: CaptureRepaired",
		"the guard repairs a pod", "a summary of the guard",
		"the kernel fails at an examination", "the taint stays for minutes", "an agent rests", "the answer about an Event is lost",
		"ready", "removed", "not removed", "a contention", "the taint is removed", "a lost change", "a program that does not run",
		"a list is written while the agent writes", "runtime: down", "runtime: silent")
}
