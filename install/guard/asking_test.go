// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/cri"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/lookup"
)

// agent is a Pods that a test makes, and what it was asked.
type agent struct {
	answer func(ctx context.Context) (lookup.Answer, error)
	asked  []lookup.Request
}

func (a *agent) Ask(ctx context.Context, request lookup.Request) (lookup.Answer, error) {
	a.asked = append(a.asked, request)
	return a.answer(ctx)
}

func (a *agent) asker(log *strings.Builder) *asker {
	return New(Settings{Conf: config.Default(), Round: time.Minute}, nil, a, slog.New(slog.NewTextHandler(log, nil)), prometheus.NewRegistry()).asker
}

func failing(err error) func(context.Context) (lookup.Answer, error) {
	return func(context.Context) (lookup.Answer, error) { return lookup.Answer{}, err }
}

func hanging(ctx context.Context) (lookup.Answer, error) {
	<-ctx.Done()
	return lookup.Answer{}, ctx.Err()
}

func asking(known bool) *watched {
	w := &watched{sandbox: cri.Sandbox{Namespace: "shop", Name: "web", UID: "uid-of-web"}}
	if known {
		w.desired = newDesired(&lookup.Answer{Digest: "d1"}, capture.Exemption{})
	}
	return w
}

// TestAsk keeps a desired state that is known, whatever becomes of a request, unless
// the pod is gone. A pod whose state is not known has the error.
func TestAsk(t *testing.T) {
	t.Parallel()
	away := errors.New("connection refused")
	failed := &lookup.Fault{Kind: lookup.Failed, Message: "the API server is away"}
	gone := &lookup.Fault{Kind: lookup.Gone, Message: "the API server has no pod shop/web"}
	for name, tt := range map[string]struct {
		answer              func(context.Context) (lookup.Answer, error)
		known               bool
		wantAnswer, wantErr bool
		logged              bool
	}{
		"first answer":             {answer: failing(nil), wantAnswer: true},
		"another answer":           {answer: failing(nil), known: true, wantAnswer: true},
		"unchanged":                {answer: func(context.Context) (lookup.Answer, error) { return lookup.Answer{Unchanged: true}, nil }, known: true},
		"no answer, not known":     {answer: failing(away), wantErr: true, logged: true},
		"no answer, known":         {answer: failing(away), known: true, logged: true},
		"no API server, not known": {answer: failing(failed), wantErr: true},
		"no API server, known":     {answer: failing(failed), known: true},
		"gone, not known":          {answer: failing(gone), wantErr: true},
		"gone, known":              {answer: failing(gone), known: true, wantErr: true},
		"the guard ends":           {answer: failing(context.Canceled), known: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log strings.Builder
			a := &agent{answer: tt.answer}
			answer, err := a.asker(&log).ask(t.Context(), asking(tt.known))
			if (answer != nil) != tt.wantAnswer || (err != nil) != tt.wantErr {
				t.Errorf("got %+v, %v", answer, err)
			}
			if logged := strings.Contains(log.String(), "the agent does not answer"); logged != tt.logged {
				t.Errorf("logged %v: %s", logged, log.String())
			}
			want := lookup.Request{Pod: capture.PodRef{Namespace: "shop", Name: "web", UID: "uid-of-web"}}
			if tt.known {
				want.Digest = "d1"
			}
			if len(a.asked) != 1 || a.asked[0] != want {
				t.Errorf("asked %+v, want %+v", a.asked, want)
			}
		})
	}
}

// TestAskPause does not ask an agent again at once that did not answer, and logs the
// failure once. Pods whose desired state is not known have a pause of their own.
func TestAskPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		a := &agent{answer: hanging}
		g := a.asker(&log)
		expectAsked := func(when string, known bool, requests int, wait time.Duration) {
			t.Helper()
			a.asked = nil
			ctx, cancel := context.WithTimeout(t.Context(), examineTimeout)
			defer cancel()
			began := time.Now()
			_, err := g.ask(ctx, asking(known))
			if took := time.Since(began); len(a.asked) != requests || took != wait || (err != nil) == known {
				t.Errorf("%s: %d requests, %s, %v; want %d and %s", when, len(a.asked), took, err, requests, wait)
			}
		}
		expectAsked("the first", true, 1, askTimeout)
		expectAsked("at once", true, 0, 0)
		expectAsked("not known", false, 1, examineTimeout)
		expectAsked("another that is not known", false, 0, 0)
		time.Sleep(askPause - examineTimeout - time.Millisecond)
		expectAsked("before the pause is over", true, 0, 0)
		time.Sleep(time.Millisecond)
		expectAsked("after the pause", true, 1, askTimeout)
		time.Sleep(examineTimeout - askTimeout - time.Millisecond)
		expectAsked("not known, before its pause is over", false, 0, 0)
		time.Sleep(time.Millisecond)
		expectAsked("not known, after its pause", false, 1, examineTimeout)
		if n := strings.Count(log.String(), "the agent does not answer"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, log.String())
		}
		time.Sleep(askPause)
		a.answer = failing(nil)
		if answer, err := g.ask(t.Context(), asking(true)); answer == nil || err != nil {
			t.Errorf("got %+v, %v", answer, err)
		}
		a.answer = hanging
		expectAsked("it hangs again", true, 1, askTimeout)
		if n := strings.Count(log.String(), "the agent does not answer"); n != 2 {
			t.Errorf("logged %d times:\n%s", n, log.String())
		}
	})
}

// TestAsksAgainAfterARefusal: an agent that is not there refuses at once, and delays no
// pod whose desired state is not known.
func TestAsksAgainAfterARefusal(t *testing.T) {
	t.Parallel()
	a := &agent{answer: failing(errors.New("connection refused"))}
	g := a.asker(&strings.Builder{})
	for range 2 {
		if _, err := g.ask(t.Context(), asking(false)); err == nil || err.Error() != "connection refused" {
			t.Errorf("got %v", err)
		}
	}
	if len(a.asked) != 2 {
		t.Errorf("%d requests", len(a.asked))
	}
}

// TestAskInjected asks once in a round's time, and keeps what was answered while the
// agent does not answer. In the pause after that, it asks for nothing.
func TestAskInjected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &agent{answer: func(context.Context) (lookup.Answer, error) {
			return lookup.Answer{Injected: []string{"uid-of-web"}}, nil
		}}
		g := a.asker(new(strings.Builder))
		ask := func(after time.Duration, asked int) {
			t.Helper()
			time.Sleep(after)
			g.askInjected(t.Context())
			if len(a.asked) != asked || !slices.Equal(g.injected, []string{"uid-of-web"}) {
				t.Errorf("asked %d times, want %d; %v", len(a.asked), asked, g.injected)
			}
		}
		ask(0, 1)
		ask(time.Minute-1, 1)
		a.answer = hanging
		ask(1, 2)
		ask(askPause-1, 2)
		ask(1, 3)
	})
}
