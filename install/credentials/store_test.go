// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	authentication "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/e2e/kubeapi"
	"github.com/capture-cni/capture-cni/e2e/lab"
	"github.com/capture-cni/capture-cni/e2e/machine"
	"github.com/capture-cni/capture-cni/install/kube"
)

// issuer is an API server that answers requests of tokens in one way.
type issuer struct {
	answer string   // a token; "" to refuse the request, "no node" if the Node does not exist
	asked  []string // the Nodes
}

// RoundTrip implements http.RoundTripper.
func (i *issuer) RoundTrip(r *http.Request) (*http.Response, error) {
	var request authentication.TokenRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		return nil, err
	}
	node := ""
	if bound := request.Spec.BoundObjectRef; bound != nil {
		node = bound.Name
	}
	i.asked = append(i.asked, node)
	code, body := http.StatusCreated, fmt.Sprintf(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","status":{"token":%q}}`, i.answer)
	switch {
	case i.answer == "":
		code, body = http.StatusForbidden, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"Forbidden","message":"no"}`
	case i.answer == "no node" && node != "":
		code, body = http.StatusNotFound, `{"apiVersion":"v1","kind":"Status","status":"Failure","reason":"NotFound","message":"gone","details":{"kind":"nodes"}}`
	case i.answer == "no node":
		body = fmt.Sprintf(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","status":{"token":%q}}`, tokenOf(time.Now(), ""))
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

// tokenOf is a token for an hour that is bound to a Node.
func tokenOf(issued time.Time, node string) string {
	return jwt(fmt.Sprintf(`{"iat":%d,"exp":%d,"kubernetes.io":{"node":{"name":%q}}}`, issued.Unix(), issued.Add(time.Hour).Unix(), node))
}

// TestEnsure has a token on the node, or none, and an API server that answers in one way.
func TestEnsure(t *testing.T) {
	t.Parallel()
	const state = "/var/lib/capture-cni"
	refused := "requesting a token for service account capture-cni/capture-cni: "
	for name, tt := range map[string]struct {
		age        time.Duration // of the current token; below 0 if it was issued later than now
		bound, own string        // Nodes: of the current token, and this agent's
		renew      bool
		answer     string
		asked      []string
		want       string // the token: current, new or none
		fault      string
	}{
		"none yet":                        {-1, "", "node-1", false, "new", []string{"node-1"}, "new", ""},
		"fresh":                           {30*time.Minute - time.Second, "node-1", "node-1", false, "new", nil, "current", ""},
		"half is over":                    {30 * time.Minute, "node-1", "node-1", false, "new", []string{"node-1"}, "new", ""},
		"rejected":                        {time.Minute, "node-1", "node-1", true, "new", []string{"node-1"}, "new", ""},
		"rejected, refused":               {time.Minute, "node-1", "node-1", true, "", []string{"node-1"}, "current", refused + "no"},
		"of another Node":                 {time.Minute, "node-2", "node-1", false, "new", []string{"node-1"}, "new", ""},
		"of no Node":                      {time.Minute, "", "node-1", false, "new", nil, "current", ""},
		"the agent does not know its own": {time.Minute, "node-2", "", false, "new", nil, "current", ""},
		"half is over, refused":           {30 * time.Minute, "node-1", "node-1", false, "", []string{"node-1"}, "current", refused + "no"},
		"expired, refused":                {time.Hour, "node-1", "node-1", false, "", []string{"node-1"}, "none", refused + "no"},
		"none yet, refused":               {-1, "", "node-1", false, "", []string{"node-1"}, "none", refused + "no"},
		"none yet, no token":              {-1, "", "node-1", false, "x", []string{"node-1"}, "none", "reading a token: it is not a JWT"},
		"none yet, no Node yet":           {-1, "", "node-1", false, "no node", []string{"node-1", ""}, "new", ""},
		"the Node is gone":                {30 * time.Minute, "node-1", "node-1", false, "no node", []string{"node-1"}, "current", refused + "gone"},
		"another Node's, no Node yet":     {time.Minute, "node-2", "node-1", false, "no node", []string{"node-1", ""}, "new", ""},
		"expired, the Node is gone":       {time.Hour, "node-1", "node-1", false, "no node", []string{"node-1", ""}, "new", ""},
		"the clock was set back":          {-30 * time.Minute, "node-1", "node-1", false, "new", nil, "current", "this node's clock is 30m0s behind the API server's: check the clocks of both"},
		"the clock is ahead":              {-1, "", "node-1", false, "old", []string{"node-1"}, "new", "this node's clock is 30m0s ahead of the API server's: check the clocks of both"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				files, current := map[string]string{"/ca.crt": "CA"}, ""
				if tt.age != -1 {
					current = tokenOf(time.Now().Add(-tt.age), tt.bound)
					files[state+"/token"] = current
				}
				api := &issuer{answer: tt.answer}
				switch tt.answer {
				case "new":
					api.answer = tokenOf(time.Now(), tt.own)
				case "old":
					api.answer = tokenOf(time.Now().Add(-30*time.Minute), tt.own)
				}
				client, err := kube.New(&rest.Config{Host: "http://api.test", Transport: api})
				lab.Check(t, err)
				root := machine.New(t, files)
				var wanted Settings
				wanted.CAFile, wanted.Node = filepath.Join(root, "/ca.crt"), tt.own
				wanted.Namespace, wanted.ServiceAccount = "capture-cni", "capture-cni"
				store := New(root, directories, wanted, client)
				for range 2 { // the second time, too soon after a request that failed
					state, err := store.Ensure(t.Context(), tt.renew && len(api.asked) == 0)
					if got := fmt.Sprint(err); got != tt.fault && (tt.fault != "" || err != nil) {
						t.Errorf("got %v, want %q", err, tt.fault)
					}
					if (state == State{}) != (tt.want == "none") {
						t.Errorf("the state is %+v", state)
					}
				}
				content, err := os.ReadFile(filepath.Join(root, state+"/token"))
				got := "none"
				switch {
				case tt.age >= time.Hour && string(content) == current: // it stays, expired
				case err == nil && string(content) == current:
					got = "current"
				case err == nil && strings.Contains(string(content), "."):
					got = "new"
				}
				if !slices.Equal(api.asked, tt.asked) || got != tt.want {
					t.Errorf("asked for %q, and has the %s token; want %q and %s", api.asked, got, tt.asked, tt.want)
				}
				if store.Requested() != map[bool]int{true: 1}[tt.want == "new"] {
					t.Errorf("%d tokens were requested", store.Requested())
				}
			})
		})
	}
}

// TestRetriesARenewal requests a token again in place of one that the API server rejects, although
// the first request failed, and the next ones need not be told of the rejection.
func TestRetriesARenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		api := &issuer{}
		client, err := kube.New(&rest.Config{Host: "http://api.test", Transport: api})
		lab.Check(t, err)
		root := machine.New(t, map[string]string{"/ca.crt": "CA", "/var/lib/capture-cni/token": tokenOf(time.Now(), "")})
		var wanted Settings
		wanted.CAFile, wanted.Namespace, wanted.ServiceAccount = filepath.Join(root, "/ca.crt"), "capture-cni", "capture-cni"
		store := New(root, directories, wanted, client)
		for attempt := range 3 {
			state, err := store.Ensure(t.Context(), attempt == 0)
			if due := time.Until(store.Due(state)); err == nil || len(api.asked) != attempt+1 || due > minRequestPause<<(attempt+1) {
				t.Errorf("attempt %d: %v, %d requests, and the next in %s", attempt, err, len(api.asked), due)
			}
			time.Sleep(time.Until(store.Due(state)))
		}
		api.answer = tokenOf(time.Now(), "")
		state, err := store.Ensure(t.Context(), false)
		if due := store.Due(state); err != nil || !due.Equal(state.Token.renewal()) || store.Requested() != 1 {
			t.Errorf("%v, %d tokens, and the next at %s", err, store.Requested(), due)
		}
	})
}

// TestWithoutCA writes nothing.
func TestWithoutCA(t *testing.T) {
	t.Parallel()
	root := machine.New(t, map[string]string{"/run/capture-cni/token": tokenUntil(time.Now().Add(time.Hour))})
	var wanted Settings
	wanted.CAFile = filepath.Join(root, "/ca.crt")
	state, err := New(root, directories, wanted, nil).Ensure(t.Context(), false)
	if state != (State{}) || !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), "reading the cluster's CA: ") {
		t.Errorf("%+v, %v", state, err)
	}
}

// TestFirstExpiry reads bundles of certificates.
func TestFirstExpiry(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Second)
	sooner, later := now.Add(time.Hour), now.Add(2*time.Hour)
	bundle := func(expiries ...time.Time) (pem []byte) {
		for _, until := range expiries {
			server, err := kubeapi.Start(kubeapi.WithValidity(now, until))
			lab.Check(t, err)
			pem = append(pem, server.Cert.PEM...)
			lab.Check(t, server.Close())
		}
		return append(pem, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"...)
	}
	for _, tt := range []struct {
		bundle []byte
		want   time.Time
	}{{nil, time.Time{}}, {bundle(), time.Time{}}, {bundle(later), later}, {bundle(later, sooner), sooner}, {bundle(sooner, later), sooner}} {
		if got := FirstExpiry(tt.bundle); !got.Equal(tt.want) {
			t.Errorf("%s: %s, want %s", tt.bundle, got, tt.want)
		}
	}
}

// TestIsRejected asks the API server about the current token, if there is one: after an answer
// other than a rejection, the pauses begin anew.
func TestIsRejected(t *testing.T) {
	t.Parallel()
	server, err := kubeapi.Start()
	lab.Check(t, err)
	defer server.Close()
	server.IssueTokens(time.Hour)
	root := machine.New(t, map[string]string{"/ca.crt": string(server.Cert.PEM)})
	var wanted Settings
	wanted.CAFile, wanted.Server = filepath.Join(root, "/ca.crt"), server.URL
	wanted.Namespace, wanted.ServiceAccount = "capture-cni", "capture-cni"
	client, err := kube.New(&rest.Config{Host: server.URL, BearerToken: server.Token(), TLSClientConfig: rest.TLSClientConfig{CAData: server.Cert.PEM}})
	lab.Check(t, err)
	store := New(root, directories, wanted, client)
	if store.IsRejected(t.Context()) {
		t.Error("no token is rejected")
	}
	state, err := store.Ensure(t.Context(), false)
	lab.Check(t, err)
	if due := store.Due(state); !due.Equal(state.Token.renewal()) {
		t.Errorf("due at %s, want %s", due, state.Token.renewal())
	}
	store.requests.rejected = 10
	if store.IsRejected(t.Context()) {
		t.Error("a token that was just issued is rejected")
	}
	now := time.Now()
	if store.requests.recordToken(now, state.Token, true); store.requests.next.After(now.Add(2 * time.Second)) {
		t.Errorf("the pause is %s", store.requests.next.Sub(now))
	}
	if due := store.Due(State{Token: Lifetime{now.Add(-time.Hour), now}}); !due.Equal(store.requests.next) {
		t.Errorf("due at %s, want %s", due, store.requests.next)
	}
	server.ChangeKeys()
	if !store.IsRejected(t.Context()) {
		t.Error("a token of other keys is accepted")
	}
	if store.requests.rejected != 1 {
		t.Error("a rejection begins the pauses anew")
	}
}
