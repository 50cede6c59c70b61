// SPDX-License-Identifier: Apache-2.0

package runtimes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/kube"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/capture-cni-lookup/apiclient"
	"github.com/capture-cni/capture-cni/plugin/lookup"
	"github.com/capture-cni/capture-cni/plugin/podnet"
	"github.com/capture-cni/capture-cni/plugin/verbs"
)

// namespace is a model of a network namespace, which keeps the rules.
type namespace struct {
	path       string
	rules      *capture.Ruleset
	edit       string // what a process of the pod has changed in them
	generation uint32 // of nf_tables
}

var podAddresses = []netip.Addr{netip.MustParseAddr("10.77.0.2"), netip.MustParseAddr("127.0.0.1")}

func (*namespace) Addresses() ([]netip.Addr, error) { return podAddresses, nil }
func (*namespace) LockFault() error                 { return nil }
func (*namespace) Close() error                     { return nil }

func (*namespace) Observe(context.Context, bool) (podnet.Observation, error) {
	return podnet.Observation{}, errors.New("not in this model")
}

func (n *namespace) Apply(_ context.Context, rules capture.Ruleset, _ config.Backend) error {
	if n.rules != nil {
		return capture.Refusal("the namespace holds other rules of an earlier ADD")
	}
	n.rules = &rules
	n.generation++
	return nil
}

// add calls our plugin for ADD, as the runtime does.
func (w *world) add(p *pod, netns *namespace) error {
	if _, err := w.execute(context.Background(), w.binDir+"/capture-cni", nil, nil, nil); err != nil {
		return fmt.Errorf("our program: %w", err)
	}
	// The plugin sees the node's directories, and not those of the test.
	entry := strings.NewReplacer(w.stateDir, config.StateDirectory, w.runDir, config.RunDirectory).Replace(w.runtime.has.entry)
	var conf map[string]any
	w.check(json.Unmarshal([]byte(entry), &conf))
	conf["name"], conf["cniVersion"], conf["prevResult"] = w.runtime.has.Network, "1.0.0", map[string]any{"cniVersion": "1.0.0"}
	if _, asked := conf["capabilities"]; asked && !w.runtime.omits {
		conf["runtimeConfig"] = map[string]any{"io.kubernetes.cri.pod-annotations": p.Annotations}
	}
	stdin, err := json.Marshal(conf)
	w.check(err)
	plugin := verbs.Plugin{Look: w.look, Open: func(context.Context, string) (verbs.Namespace, error) { return netns, nil }, Send: w.receive}
	_, err = plugin.Add(&skel.CmdArgs{
		ContainerID: p.sandbox, Netns: netns.path, IfName: "eth0", StdinData: stdin,
		Args: fmt.Sprintf("IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_UID=%s", p.Namespace, p.Name, p.UID),
	}, io.Discard)
	return err
}

// del calls our plugin for DEL, of a namespace that is gone.
func (w *world) del() {
	if _, err := w.execute(context.Background(), w.binDir+"/capture-cni", nil, nil, nil); err != nil {
		return // which is judged elsewhere
	}
	var stdout bytes.Buffer
	if status := verbs.Run("DEL", &stdout, io.Discard); status != 0 {
		w.fail("DEL fails: %s", stdout.String())
	}
}

// agentServes reports whether the agent answers at its sockets.
func (w *world) agentServes() bool { return w.agent != nil && w.agent.lock != nil && !w.agent.stopped }

// look asks the agent, and then the API server, each once: the lookup's own retries wait for times that
// no seed decides.
func (w *world) look(l lookup.Lookup, ctx context.Context, ref capture.PodRef) (lookup.Answer, error) {
	if w.agentServes() && l.Agent.Socket != "" {
		answer, err := w.Ask(ctx, lookup.Request{Pod: ref, Attempt: 1})
		if err == nil {
			w.reach("the agent answers about a pod")
			return answer, nil
		}
		if lookup.IsGone(err) {
			return answer, lookup.Error{Err: err}
		}
	}
	token := w.credentials()
	if token == "" {
		return lookup.Answer{}, lookup.Error{Err: errors.New("no credentials")}
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	api, err := kube.New(&rest.Config{Host: "http://api", BearerToken: token, QPS: -1, Transport: w})
	w.check(err)
	found, err := api.Pod(ctx, ref)
	if err == nil {
		err = apiclient.CheckUID(ref, string(found.UID))
	}
	if err != nil {
		return lookup.Answer{}, lookup.Error{Err: err}
	}
	w.reach("the API server answers about a pod")
	return apiclient.AnswerOf(found), nil
}

// credentials returns the token with which the plugin can read a pod by itself, or "".
func (w *world) credentials() string {
	if _, err := w.execute(context.Background(), w.binDir+"/"+config.LookupProgram, nil, nil, nil); err != nil {
		return ""
	}
	for _, directory := range []string{w.stateDir, w.runDir} {
		token, err := os.ReadFile(filepath.Join(directory, "token"))
		_, noKubeconfig := os.Stat(filepath.Join(directory, config.KubeconfigName))
		if err == nil && noKubeconfig == nil && w.api.Accepts(string(token)) {
			return string(token)
		}
	}
	return ""
}

// readPods lists the node's pods for the agent, as its watch does.
func (w *world) readPods() {
	a := w.agent
	list, err := w.list()
	if err != nil {
		a.pods.Store().WatchFailed(err)
		return
	}
	store := a.pods.Store()
	store.WatchStarted()
	var entries []any
	for i := range list.Items {
		entry, err := store.Transform(&list.Items[i])
		w.check(err)
		entries = append(entries, entry)
	}
	w.check(store.Replace(entries, ""))
	a.synced = true
}

// list reads all pods of the node.
func (w *world) list() (list corev1.PodList, err error) {
	ctx, cancel := context.WithTimeout(w.agent.ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1", http.NoBody)
	w.check(err)
	request.Header.Set("Authorization", "Bearer agent")
	response, err := w.agent.refusals.Observe(w).RoundTrip(request)
	if err != nil {
		return list, err
	}
	if response.StatusCode != http.StatusOK {
		return list, errors.New(response.Status)
	}
	return list, json.NewDecoder(response.Body).Decode(&list)
}
