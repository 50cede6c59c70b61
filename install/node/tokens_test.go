// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/credentials"
	"github.com/capture-cni/capture-cni/install/kube"
	"github.com/capture-cni/capture-cni/install/report"
)

// withTokens is a keeper of a node with credentials, and its API server.
func withTokens(t *testing.T) (*kept, *kubeapi.Server) {
	t.Helper()
	server, err := kubeapi.Start()
	lab.Check(t, err)
	t.Cleanup(func() { _ = server.Close() })
	server.IssueTokens(time.Hour)
	client, err := kube.New(&rest.Config{Host: server.URL, BearerToken: server.Token(), TLSClientConfig: rest.TLSClientConfig{CAData: server.Cert.PEM}})
	lab.Check(t, err)
	k := keep(t, client, func(s *Settings) {
		s.Credentials.OnNode, s.Credentials.Server = true, server.URL
		s.Credentials.Namespace, s.Credentials.ServiceAccount = "mesh", "agent"
	})
	lab.Check(t, os.MkdirAll(k.node.Settings.At("/ca"), 0o755))
	lab.Check(t, os.WriteFile(k.node.Settings.Credentials.CAFile, server.Cert.PEM, 0o644))
	return k, server
}

// TestTokens requests a token, checks it, and replaces one that the API server rejects.
func TestTokens(t *testing.T) {
	t.Parallel()
	k, server := withTokens(t)
	k.resync(t.Context(), false)
	token := k.node.Credentials.Token
	ca := credentials.FirstExpiry(server.Cert.PEM)
	k.expect("requested", good, map[string]float64{
		"token_requests_total": 1, "token_issued_timestamp_seconds": float64(token.Issued.Unix()),
		"token_expires_timestamp_seconds": float64(token.Expires.Unix()), "ca_expires_timestamp_seconds": float64(ca.Unix()),
	})
	if age := float64(time.Now().Unix()) - k.metric("credentials_checked_timestamp_seconds"); age < -1 || age > 60 {
		t.Errorf("the credentials were checked %v s ago", age)
	}
	k.checkToken(t.Context())
	k.expect("accepted", good, map[string]float64{"token_requests_total": 1, "token_rejected_total": 0})
	if time.Since(k.tokenChecked) > time.Minute {
		t.Errorf("the token was checked at %s", k.tokenChecked)
	}
	server.ChangeKeys()
	k.checkToken(t.Context())
	k.expect("rejected", good, map[string]float64{"token_requests_total": 2, "token_rejected_total": 1})
	k.checkToken(t.Context())
	k.expect("replaced", good, map[string]float64{"token_requests_total": 2, "token_rejected_total": 1})
	checked := k.metric("credentials_checked_timestamp_seconds")
	lab.Check(t, os.Remove(k.node.Settings.Credentials.CAFile))
	k.resync(t.Context(), false)
	if report := k.lastReport(); report.IsGood(PartCredentials) || k.metric("credentials_checked_timestamp_seconds") != checked {
		t.Errorf("without a CA: %s", report)
	}
	lab.Check(t, os.Remove(k.node.Settings.At("/var/lib/capture-cni/token")))
	if report := k.CurrentReport(t.Context()).String(); !strings.HasPrefix(report, "credentials: reading the cluster's CA: ") {
		t.Errorf("without a CA, which explains that there is no token: %s", report)
	}
	if k.Preflight(t.Context()); k.metric("preflight_problems serious") < 0 {
		t.Error("the problems that preflight finds are not counted")
	}
	earlier := "runtime_info"
	for _, name := range []string{"containerd", "cri-o"} {
		k.node.Runtime = machine.Serve(t, machine.Named{Runtime: name, Release: "9"})
		k.resync(t.Context(), false)
		now := "runtime_info " + name + " " + k.node.Runtime.Socket() + " 9"
		k.expect("with "+name, k.CurrentReport(t.Context()).String(), map[string]float64{now: 1, earlier: -1})
		earlier = now
	}
}

// TestClock reports that the clocks of node and API server differ, as the last token shows.
func TestClock(t *testing.T) {
	t.Parallel()
	k, server := withTokens(t)
	server.SetClock(2 * time.Hour)
	k.resync(t.Context(), false)
	if report := k.CurrentReport(t.Context()).String(); !strings.Contains(report, "this node's clock is ") {
		t.Errorf("with another clock: %s", report)
	}
}

// TestUntilNext checks the node again after a minute, or when something is due before.
func TestUntilNext(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		onNode bool
		mode   string
		left   bool // credentials on a node without
		token  time.Duration
		want   time.Duration
	}{
		"nothing is due":                  {false, "insert", false, 0, resyncInterval},
		"undecided":                       {false, "auto", false, 0, undecidedInterval},
		"credentials to remove":           {false, "insert", true, 0, undecidedInterval},
		"a fault, with credentials":       {true, "insert", true, time.Hour, resyncInterval},
		"a token is due in half a minute": {true, "insert", false, 30 * time.Second, 30 * time.Second},
		"a token was due":                 {true, "insert", false, -time.Hour, pollInterval},
	} {
		k := keep(t, nil, func(s *Settings) { s.Credentials.OnNode = tt.onNode })
		now := time.Now()
		k.node.Mode = report.Mode(tt.mode)
		k.node.Credentials.Token = credentials.Lifetime{Issued: now.Add(tt.token - time.Minute), Expires: now.Add(tt.token + time.Minute)}
		report := Report{}
		if tt.left {
			report.Add(PartCredentials, errors.New("left"))
		}
		k.setReport(report)
		if got := k.untilNext(); got > tt.want || got < tt.want-time.Second/2 {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// present runs Present until a test ends it, and returns what waits for the value of a metric.
func (k *kept) present() (eventually func(metric string, want float64), end func()) {
	ctx, cancel := context.WithCancel(k.t.Context())
	var running sync.WaitGroup
	running.Go(func() { k.Present(ctx) })
	return func(metric string, want float64) {
		k.t.Helper()
		lab.Eventually(k.t, func() error {
			if got := k.metric(metric); got != want {
				return fmt.Errorf("%s is %v, want %v; %s", metric, got, want, k.log)
			}
			return nil
		})
	}, func() { cancel(); running.Wait() }
}

// TestPresent keeps the entry while the agent runs, and leaves the entry at the end.
func TestPresent(t *testing.T) {
	t.Parallel()
	k, server := withTokens(t)
	eventually, end := k.present()
	eventually("token_requests_total", 1)
	k.rewrite()
	eventually("entry_repairs_total", 1)
	var took time.Duration
	for range promptRepairs + 1 { // the last one after a pause
		before, began := k.metric("entry_repairs_total"), time.Now()
		k.rewrite()
		eventually("entry_repairs_total", before+1)
		took = time.Since(began)
	}
	if took < minBackOff/2 {
		t.Errorf("a repair with a back-off followed after %s", took)
	}
	k.expect("before the keys change", k.CurrentReport(t.Context()).String(), map[string]float64{"token_rejected_total": 0, "watch_polling": 0})
	server.ChangeKeys()
	lab.Check(t, os.Remove(k.node.Settings.At("/var/lib/capture-cni/token")))
	lab.Check(t, os.WriteFile(k.node.Settings.At("/ca/other"), nil, 0o644)) // the CA may have changed: all is checked
	eventually("token_requests_total", 2)
	end()
	if !k.hasEntry() {
		t.Error("the entry is gone")
	}
}

// TestPresentRenews requests the next token once one is due.
func TestPresentRenews(t *testing.T) {
	t.Parallel()
	k, server := withTokens(t)
	server.IssueTokens(time.Second)
	eventually, end := k.present()
	defer end()
	eventually("token_requests_total", 2)
}

// TestPresentPolls polls directories if one of them can't be watched.
func TestPresentPolls(t *testing.T) {
	t.Parallel()
	k := keep(t, nil, func(s *Settings) { s.BinDirs = []string{list + "/bin"} })
	eventually, end := k.present()
	defer end()
	eventually("watch_polling", 1)
}
