// SPDX-License-Identifier: Apache-2.0

package search

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/e2e/lab"
)

var soak = flag.Duration("soak", 0, "how long TestSearch draws sequences, instead of a fixed number of them")

// TestSearch draws so many sequences in each world: 98 of 100 pairs of actions occur in one run,
// and each run draws others. make soak draws for longer.
const sequences, fencedSequences = 60, 140

// mostFindings in one world end the search there.
const mostFindings = 40

// TestSearch draws sequences of actions, and wants each to leave capture as it is: what
// must meet the proxy meets it or nothing, and innocent connections succeed. SEED repeats
// a search.
func TestSearch(t *testing.T) {
	lab.RequireRoot(t)
	seed := rand.Uint64N(1 << 32)
	if text := os.Getenv("SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("SEED: %v", err)
		}
	}
	t.Logf("SEED=%d", seed)
	s := search{t: t, seed: seed, start: time.Now(), found: map[string]bool{}}
	var group sync.WaitGroup
	for i, setting := range settings(rand.New(rand.NewPCG(seed, 0))) {
		group.Go(func() {
			if err := s.search(t.Context(), uint64(i+1), setting); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	took := time.Since(s.start)
	t.Logf("%d sequences in %s, %.0f in a second; ordinary connections met %v\n%s", s.run, took.Round(time.Second), float64(s.run)/took.Seconds(), s.met, &s.coverage)
	if *soak == 0 { // a short one on a busy machine covers less
		s.coverage.check(t)
	}
	for _, met := range []outcome{metProxy, metDirect, metRefusal} {
		if s.met[met] == 0 {
			t.Errorf("no ordinary connection met this: %s", met)
		}
	}
}

// settings are all that the grid has, and draws of the rest.
func settings(r *rand.Rand) (all []setting) {
	for _, backend := range []config.Backend{config.NFTables, config.IPTablesNFT, config.IPTablesLegacy} {
		add := func(s setting) {
			s.backend = backend
			all = append(all, s)
		}
		some := func(of int) bool { return r.IntN(of) == 0 }
		for _, transparent := range []bool{false, true} {
			for _, excluded := range []bool{false, true} {
				add(setting{transparent: transparent, excluded: excluded, cookies: some(4), dropInvalid: some(3), mesh: config.Istio})
			}
			add(setting{transparent: transparent, excluded: some(3), cookies: some(4), dropInvalid: some(3), mesh: config.Istio, fenced: true, dns: some(2)})
		}
		for _, mesh := range []config.MeshName{config.Linkerd, config.Consul, config.Kuma, config.OwnKeys} {
			own := mesh == config.OwnKeys
			queries := own || mesh == config.Kuma
			add(setting{cookies: some(4), mesh: mesh})
			add(setting{cookies: some(4), mesh: mesh, fenced: true, egress: own, dns: queries && some(2)})
		}
		add(setting{transparent: some(2), excluded: some(3), mesh: config.Istio, fenced: true, ipv4: true, dns: some(2)})
	}
	return all
}

// search is what the worlds share.
type search struct {
	t     *testing.T
	seed  uint64
	start time.Time

	mu       sync.Mutex
	run      int
	met      map[outcome]int
	coverage coverage
	found    map[string]bool
}

func (s *search) search(ctx context.Context, number uint64, setting setting) (err error) {
	w, err := newWorld(ctx, setting)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	findings, most := 0, uint64(sequences)
	if w.fenced {
		most = fencedSequences
	}
	for n := uint64(0); !w.broken && findings < mostFindings && (*soak == 0 && n < most || *soak > 0 && time.Since(s.start) < *soak); n++ {
		r := rand.New(rand.NewPCG(s.seed, number<<32|n))
		drawn := draw(r, setting.fenced)
		result, err := w.try(ctx, drawn)
		if err != nil {
			return fmt.Errorf("%s: sequence %d of SEED=%d: %w\n\t%s", setting, n, s.seed, err, drawn)
		}
		s.count(drawn, result)
		if result.failed() {
			findings++
			if err := s.report(ctx, w, n, drawn, result); err != nil {
				return err
			}
		}
		if n%16 == 0 {
			list := w.innocents(drawn.family)
			if err := w.startRetry(drawn.family, list[r.IntN(len(list))]); err != nil {
				return fmt.Errorf("%s: %w", setting, err)
			}
		}
		s.harm(setting, w.finishRetries(false))
	}
	s.harm(setting, w.finishRetries(true))
	return nil
}

// result is what came of a sequence: ways around capture, or else the innocent connection
// that failed.
type result struct {
	holes []string
	harm  string
	met   map[outcome]int
}

func (r result) String() string { return strings.Join(r.holes, "; ") + r.harm }

func (r result) failed() bool { return r.String() != "" }

// try runs a sequence once.
func (w *world) try(ctx context.Context, s sequence) (result, error) {
	result := result{met: map[outcome]int{}}
	r, err := w.begin(ctx, s)
	defer r.end()
	if err == nil {
		err = r.do()
	}
	if err == nil && len(r.holes) == 0 {
		err = r.verdict(result.met)
	}
	if err == nil && len(r.holes) == 0 {
		result.harm = r.harmed()
		err = r.watch()
	}
	result.holes = r.holes
	return result, err
}

func (s *search) count(drawn sequence, result result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.run++
	s.coverage.add(drawn)
	if s.met == nil {
		s.met = map[outcome]int{}
	}
	for met, n := range result.met {
		s.met[met] += n
	}
}

func (s *search) harm(setting setting, faults []string) {
	for _, fault := range faults {
		s.t.Errorf("SEED=%d: %s: %s", s.seed, setting, fault)
	}
}

// report prints a finding whose shortest form is new. One that does not come again is a
// late packet of an earlier sequence: it is only in the log.
func (s *search) report(ctx context.Context, w *world, n uint64, drawn sequence, first result) error {
	at := time.Since(s.start)
	short, last, err := w.shrink(ctx, drawn)
	if err != nil {
		return err
	}
	w.broken = last.harm != "" && len(short.actions) == 0
	if !last.failed() {
		s.t.Logf("SEED=%d, after %s: %s: sequence %d did not fail again: %s\n\t%s", s.seed, at.Round(time.Millisecond), w.setting, n, first, drawn)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if shape := short.shape(); !s.found[shape] {
		s.found[shape] = true
		s.t.Errorf("SEED=%d, after %s: %s: sequence %d: %s\n\t%s\ndrawn as:\n\t%s", s.seed, at.Round(time.Millisecond), w.setting, n, last, short, drawn)
	}
	return nil
}
