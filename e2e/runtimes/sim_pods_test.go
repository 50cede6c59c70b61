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
	"reflect"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/install/kube"
	"github.com/capture-cni/capture-cni/plugin/capture"
	"github.com/capture-cni/capture-cni/plugin/capture-cni-lookup/apiclient"
	"github.com/capture-cni/capture-cni/plugin/lookup"
	"github.com/capture-cni/capture-cni/plugin/podfields"
	"github.com/capture-cni/capture-cni/plugin/podnet"
	"github.com/capture-cni/capture-cni/plugin/verbs"
)

// podKind is what the API server says about a pod.
type podKind string

const (
	meshed  podKind = "a meshed pod"
	other   podKind = "another pod"
	refused podKind = "a refused pod" // a meshed one with an annotation that no plugin understands
)

// pod is one that the kubelet wants to run.
type pod struct {
	*corev1.Pod
	kind  podKind
	netns *namespace // of its sandbox, nil if it has none
	tries int
}

func (p *pod) ref() capture.PodRef {
	return capture.PodRef{Namespace: p.Namespace, Name: p.Name, UID: string(p.UID)}
}

// namespace is a model of a network namespace, which keeps the rules.
type namespace struct{ rules *capture.Ruleset }

var podAddresses = []netip.Addr{netip.MustParseAddr("10.77.0.2"), netip.MustParseAddr("127.0.0.1")}

func (*namespace) Addresses() ([]netip.Addr, error) { return podAddresses, nil }
func (*namespace) Close() error                     { return nil }

func (*namespace) Observe(context.Context, bool) (podnet.Observation, error) {
	return podnet.Observation{}, errors.New("not in this model")
}

func (n *namespace) Apply(_ context.Context, rules capture.Ruleset, _ config.Backend) error {
	if n.rules != nil {
		return capture.Refusal("the namespace holds other rules of an earlier ADD")
	}
	n.rules = &rules
	return nil
}

// outcome is what became of an ADD.
type outcome string

const (
	captured   outcome = "captured"
	uncaptured outcome = "uncaptured"
	failed     outcome = "failed"
)

// schedule lets the scheduler bind a pod to the node, and the kubelet start it.
func (w *world) schedule(kind podKind) (result outcome, why string) {
	w.runtime.added++
	p := &pod{kind: kind, Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: fmt.Sprint("web-", w.runtime.added), UID: types.UID(fmt.Sprintf("%08d-0000", w.runtime.added)),
			Annotations: map[string]string{"kubernetes.io/config.source": "api"},
		},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "app"}}},
	}}
	if kind != other {
		p.Annotations["sidecar.istio.io/status"] = "{}"
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "istio-proxy", Args: []string{"proxy", "sidecar"}})
	}
	if kind == refused {
		p.Annotations["traffic.sidecar.istio.io/excludeOutboundPorts"] = "none"
	}
	w.api.Put(p.Pod)
	if w.agentServes() && w.apiState == "ok" && w.agent.synced {
		w.check(w.agent.pods.Store().Add(p.DeepCopy())) // as the watch does
	}
	w.pods = append(w.pods, p)
	return w.start(p)
}

// retry lets the kubelet try again to start pods. It gives up pods that can't start.
func (w *world) retry() {
	for _, p := range w.pods {
		if p.netns == nil && (p.kind != refused || p.tries < 3) && w.failure == nil {
			w.start(p)
		}
	}
}

// start starts a pod, as the kubelet has the runtime do, and checks what came of it.
func (w *world) start(p *pod) (result outcome, why string) {
	w.watch()
	due, known := w.isDue(), w.isKnown(p)
	result, why = w.run(p)
	p.tries++
	w.reach(string(p.kind) + ": " + string(result))
	isCalled := w.runtime.state == "up" && w.runtime.has.calls()
	switch {
	case result == failed && strings.HasPrefix(why, "our program"):
		if p.kind == other && !w.accident {
			w.fail("%s does not start: %s", p.kind, why)
		}
	case isCalled && p.kind == refused && result != failed:
		w.fail("%s starts, although its annotations have a fault", p.kind)
	case isCalled && p.kind == meshed && result == uncaptured:
		w.fail("%s starts without rules", p.kind)
	case isCalled && p.kind == other && result == captured:
		w.fail("%s has rules", p.kind)
	case isCalled && p.kind != refused && result == failed && known:
		w.fail("%s does not start: %s", p.kind, why)
	case p.kind == meshed && result != captured && due && w.agent != nil && w.agent.state == "present":
		w.fail("%s on a node without a fault: %s %s", p.kind, result, why)
	case p.kind == other && result == failed && due && w.agent != nil && w.agent.state == "present":
		w.fail("%s does not start on a node without a fault: %s", p.kind, why)
	}
	return result, why
}

// isKnown reports whether the plugin can decide about a pod: by the annotations that the runtime passes,
// by the agent, or by the API server.
func (w *world) isKnown(p *pod) bool {
	switch {
	case p.kind == other && !w.runtime.omits:
		return true
	case w.agentServes() && (w.apiState == "ok" || w.agent.pods.Watches(p.ref())):
		return true
	}
	return w.apiState == "ok" && w.credentials() != ""
}

// run makes a pod's sandbox, and calls the plugins.
func (w *world) run(p *pod) (result outcome, why string) {
	switch {
	case w.runtime.state != "up":
		return failed, "the runtime does not answer"
	case w.runtime.has.Network == "":
		return failed, "no network"
	}
	netns := &namespace{}
	if w.runtime.has.calls() {
		if err := w.add(p, netns); err != nil {
			w.del()
			return failed, err.Error()
		}
	}
	p.netns = netns
	sandbox := &runtimeapi.PodSandbox{Id: string(p.UID), Metadata: &runtimeapi.PodSandboxMetadata{Namespace: p.Namespace, Name: p.Name, Uid: string(p.UID)}}
	if p.kind != other {
		sandbox.Annotations = p.Annotations
	}
	w.runtime.pods = append(w.runtime.pods, sandbox)
	if netns.rules == nil {
		return uncaptured, ""
	}
	if want := w.want(p); !reflect.DeepEqual(netns.rules, want) {
		w.fail("%s has other rules than those of its annotations: %+v", p.kind, netns.rules)
	}
	return captured, ""
}

// want returns the rules that a pod needs.
func (w *world) want(p *pod) *capture.Ruleset {
	decision, err := capture.Decide(podfields.Of(p.Pod), config.Default().Capture)
	w.check(err)
	decision, err = podnet.Complete(decision, podAddresses)
	w.check(err)
	rules := decision.Rules.WithStamp()
	return &rules
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
	node := verbs.Node{Look: w.look, Open: func(context.Context, string) (verbs.Namespace, error) { return netns, nil }, Send: w.receive}
	_, err = node.Add(&skel.CmdArgs{
		ContainerID: string(p.UID), Netns: "/var/run/netns/" + string(p.UID), IfName: "eth0", StdinData: stdin,
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

// endPods ends all pods.
func (w *world) endPods() {
	for _, p := range w.pods {
		if p.netns != nil {
			w.del()
		}
		w.api.Delete(p.Namespace, p.Name)
		if w.agentServes() && w.apiState == "ok" {
			w.check(w.agent.pods.Store().Delete(p.Pod))
		}
	}
	w.pods, w.runtime.pods = nil, nil
	w.disturb()
}

// agentServes reports whether the agent answers at its sockets.
func (w *world) agentServes() bool { return w.agent != nil && w.agent.lock != nil && !w.agent.stopped }

// look asks the agent, and then the API server, each once: the lookup's own retries wait for times that
// no seed decides.
func (w *world) look(l lookup.Lookup, ctx context.Context, ref capture.PodRef) (lookup.Answer, error) {
	request := lookup.Request{Version: capture.PodVersion, Pod: ref, Attempt: 1}
	if w.agentServes() && l.Agent.Socket != "" {
		answer, err := lookup.ParseAnswer(w.agent.pods.Answer(ctx, request), request)
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
