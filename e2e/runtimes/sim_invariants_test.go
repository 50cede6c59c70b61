// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/capture-cni/capture-cni/install/report"
)

// withoutOurs returns a list without our entries, and whether it has one.
func withoutOurs(text string) (without string, ours bool) {
	var keys map[string]any
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if decoder.Decode(&keys) != nil {
		return text, false
	}
	plugins, _ := keys["plugins"].([]any)
	kept := slices.DeleteFunc(slices.Clone(plugins), func(plugin any) bool {
		entry, _ := plugin.(map[string]any)
		return entry["type"] == "capture-cni"
	})
	if len(kept) == len(plugins) {
		return text, false
	}
	keys["plugins"] = kept
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetIndent("", "\t")
	_ = encoder.Encode(keys) // of values that were just read
	return out.String(), true
}

// sameBut reports whether a list is another program's, but for our entry.
func sameBut(now, written string) bool {
	if now == written {
		return true
	}
	now, _ = withoutOurs(now)
	written, _ = withoutOurs(written)
	var a, b any
	return json.Unmarshal([]byte(now), &a) == nil && json.Unmarshal([]byte(written), &b) == nil && reflect.DeepEqual(a, b)
}

// examineFiles checks what holds at each moment, also between two calls of the agent.
func (w *world) examineFiles(when string) {
	if w.failure != nil {
		return
	}
	w.examined = w.generation
	for name, written := range w.others {
		now, err := os.ReadFile(w.netDir + "/" + name)
		switch {
		case err != nil:
			w.fail("%s: %s of another program is gone", when, name)
		case filepath.Ext(name) == ".conf" && string(now) != written, !sameBut(string(now), written):
			w.fail("%s: %s of another program has lost something: %s", when, name, now)
		}
	}
	if own, err := os.ReadFile(w.netDir + "/00-capture-cni.conflist"); err == nil {
		if _, err := libcni.NetworkConfFromBytes(own); err != nil {
			w.fail("%s: our list is not complete: %v", when, err)
		}
	}
	text, err := os.ReadFile(w.binDir + "/capture-cni")
	runs := err == nil && strings.HasPrefix(string(text), program) && !strings.Contains(string(text), "broken")
	switch {
	case runs:
		w.installed, w.accident = true, w.accident && len(w.disk.unsynced) > 0
	case w.installed && !w.accident:
		w.fail("%s: our program does not run: DEL would fail", when)
	case !w.accident && w.wouldLoad().calls():
		w.fail("%s: the runtime would call our program, which does not run", when)
	}
	// Without a network, no pod starts uncaptured.
	if w.calledUs && !w.wouldLoad().calls() && (w.wouldLoad().Network != "" || w.hasPrograms()) {
		w.fail("%s: the agent's own step opened a window: the runtime would load %+v", when, w.wouldLoad())
	}
}

// isHealthy reports whether nothing keeps the node from its desired state.
func (w *world) isHealthy() bool {
	if w.apiState != "ok" || !w.isRegistered || w.runtime.state != "up" || w.runtime.late > 0 || len(w.loops) > 0 || w.operator.version == "broken" {
		return false
	}
	for directory, fault := range w.disk.standing {
		if w.mustStop(directory, fault) {
			return false
		}
	}
	if !w.hasPrograms() {
		return false
	}
	first := ""
	for name, written := range w.others {
		if !slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(name)) {
			continue
		}
		if !json.Valid([]byte(written)) {
			return false
		}
		if first == "" || name < first {
			first = name
		}
	}
	isList := filepath.Ext(first) == ".conflist"
	switch w.operator.mode {
	case report.Insert:
		return isList
	case report.DropIn:
		return isList
	}
	return first != ""
}

// hasPrograms reports whether no program of another plugin is missing or broken.
func (w *world) hasPrograms() bool {
	return !slices.ContainsFunc(primaries, func(name string) bool {
		text, _ := os.ReadFile(w.binDir + "/" + name)
		return string(text) != program
	})
}

// mustStop reports whether a standing fault of the disk keeps the node from its desired state. The
// credentials are in the run directory while the state directory is full.
func (w *world) mustStop(directory string, fault syscall.Errno) bool {
	return directory != w.stateDir+"/" || fault != syscall.ENOSPC
}

// isDue reports whether the node must be in its desired state by now.
func (w *world) isDue() bool {
	now := time.Now()
	return w.isHealthy() && !now.Before(w.slowUntil) && now.Sub(w.calm) >= 3*time.Second
}

var writer = regexp.MustCompile(`keeps removing the entry.* writer=(\S+)`)

// examine checks what holds whenever the agent has come to rest.
func (w *world) examine() {
	w.calledUs = false
	w.examineFiles("at rest")
	w.examinePods()
	if w.agent != nil {
		w.examineLease()
	}
	if w.failure != nil || w.agent == nil || w.agent.lock == nil {
		return
	}
	for _, match := range writer.FindAllSubmatch(w.logs.Bytes(), -1) {
		w.reach("a contention")
		if name := string(match[1]); name != "unknown" && (name != "cilium" || !w.ciliumTrace) {
			w.fail("another program is blamed: %s", match[0])
		}
	}
	if w.agent.state == "absent" {
		w.examineRemoval()
		return
	}
	found := w.agent.CurrentReport(w.agent.ctx)
	truth := w.wouldLoad()
	if !w.mayChoose && found.Mode != report.Auto {
		w.fail("the agent has chosen mode %s before the runtime answered", found.Mode)
	}
	if w.disk.killed { // by one of the reads
		w.endStep()
		return
	}
	if found.Good() {
		w.reach("ready")
		w.examineReady(truth)
		// From now on, only another writer can disturb it. A token that could not be renewed may be
		// a fault only later, until the next request, at most a minute after the last one.
		if w.isHealthy() && time.Since(w.refused) > time.Minute {
			w.slowUntil = time.Time{}
		}
		return
	}
	for _, fault := range found.Findings.Faults() {
		w.reach("not ready: " + fault.Subject)
		if fault.Reason == "" || fault.Subject == "" {
			w.fail("not ready without a cause: %+v", fault)
		}
	}
	if w.isDue() {
		w.fail("not recovered: %s", found)
	}
}

// examineReady checks that ready is true.
func (w *world) examineReady(truth loaded) {
	if !truth.calls() {
		w.fail("ready, and the runtime would load %+v", truth)
	}
	if w.runtime.name == "containerd" && w.runtime.state == "up" && !w.runtime.has.calls() {
		w.fail("ready, and the runtime has loaded %+v", w.runtime.has)
	}
	ours, _ := os.ReadFile(w.binDir + "/capture-cni")
	if want := version(w.agent.version); string(ours) != want {
		w.fail("ready with another program: %q", ours)
	}
	if !w.hasToken() {
		w.fail("ready without a token that is valid")
	}
	if (w.apiState == "401" || w.apiState == "403") && time.Since(w.apiSince) > 2*time.Minute && time.Since(w.agent.began) > 2*time.Minute {
		w.fail("ready, and the API server answers %s for %s", w.apiState, time.Since(w.apiSince))
	}
}

// examineRemoval checks that a node which is clean has what was there before.
func (w *world) examineRemoval() {
	found := w.agent.CurrentReport(w.agent.ctx)
	if w.disk.killed {
		w.endStep()
		return
	}
	if !found.Good() {
		w.reach("not removed")
		if w.isHealthy() && time.Since(w.calm) > 2*time.Minute && (w.operator.force || len(w.runtime.pods) == 0) {
			w.fail("not removed: %s", found)
		}
		return
	}
	w.reach("removed")
	if now := w.tree(w.netDir); !reflect.DeepEqual(now, w.others) && time.Since(w.calm) > time.Minute {
		w.fail("removal leaves %q, want %q", now, w.others)
	}
	if left := w.tree(w.stateDir); len(left) > 0 && time.Since(w.calm) > time.Minute {
		w.fail("removal leaves %q", left)
	}
}

// hasToken reports whether a token on the node has not expired.
func (w *world) hasToken() bool {
	for _, directory := range []string{w.stateDir, w.runDir} {
		token, _ := os.ReadFile(directory + "/token")
		parts := strings.Split(string(token), ".")
		if len(parts) != 3 {
			continue
		}
		payload, _ := base64.RawURLEncoding.DecodeString(parts[1])
		var claims struct{ Exp int64 }
		if json.Unmarshal(payload, &claims) == nil && time.Now().Unix() < claims.Exp {
			return true
		}
	}
	return false
}

// examineLog checks that no line repeats without end.
func (w *world) examineLog() {
	most := 60 + 2*int(time.Since(w.born)/time.Minute) // repairs during a contention come with a back-off
	count := map[string]int{}
	for line := range strings.Lines(temporary.ReplaceAllString(w.logs.String(), "")) {
		if count[line]++; count[line] > most {
			w.fail("logged more than %d times: %s", most, line)
		}
	}
}
