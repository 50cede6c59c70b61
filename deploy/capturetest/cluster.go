// SPDX-License-Identifier: Apache-2.0

package capturetest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/capture-cni/capture-cni/config"
	"github.com/capture-cni/capture-cni/deploy/fleet"
	"github.com/capture-cni/capture-cni/install/report"
)

// object is a namespace, a Service or a pod, which a test creates.
type object interface {
	runtime.Object
	metav1.Object
}

func kindOf(o object) string {
	switch o.(type) {
	case *corev1.Namespace:
		return "namespace"
	case *corev1.Service:
		return "Service"
	}
	return "pod"
}

// requestTimeout limits the creation of one object. Ctrl-C does not interrupt a creation, because the
// test must know whether it has to remove the object.
const requestTimeout = 10 * time.Second

// create creates an object, and returns it as the API server admitted it. At the end of the mode, the
// test removes the object, or the namespace that contains it.
func create[T object](ctx context.Context, r *run, o T) (T, error) {
	created := o.DeepCopyObject().(T)
	if ctx.Err() != nil {
		return created, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	err := r.Client.Request("POST", o, o.GetNamespace()).Body(o).Do(ctx).Into(created)
	if !isRefused(err) && o.GetNamespace() == r.Namespace {
		r.created = append(r.created, o)
	}
	if err != nil {
		return created, r.refusal(fmt.Errorf("creating %s %s: %w", strings.ToLower(kindOf(o)), o.GetName(), err))
	}
	return created, nil
}

// remove deletes objects that are all in one namespace, or all in none, and waits until they do not
// exist any more.
func (t *Test) remove(ctx context.Context, objects ...object) error {
	errs := make([]error, len(objects))
	var removals sync.WaitGroup // an object that stays must not keep the others
	for i, o := range objects {
		removals.Go(func() { errs[i] = t.removeOne(ctx, o) })
	}
	removals.Wait()
	err := errors.Join(errs...)
	if err == nil {
		return nil
	}
	if namespace := objects[0].GetNamespace(); namespace != "" {
		look := report.Command("kubectl", "--namespace", namespace, "get", "pods,services", "--selector", selector)
		return fmt.Errorf("removing pods and Services: %w; look at %s", err, look)
	}
	name := objects[0].GetName()
	return fmt.Errorf("removing namespace %s: %w; if it stays: %s", name, err, report.Command("kubectl", "delete", "namespace", name))
}

// removeOne deletes an object, and waits until it does not exist any more. It retries after every error
// except a refusal, until ctx ends.
func (t *Test) removeOne(ctx context.Context, o object) error {
	for deleted := false; ; {
		var err error
		if !deleted {
			err = t.Client.Request("DELETE", o, o.GetNamespace()).Name(o.GetName()).Do(ctx).Error()
			deleted = err == nil || apierrors.IsConflict(err) // the namespace is already being deleted
		}
		if deleted {
			err = t.Client.Get(ctx, o.GetNamespace(), o.GetName(), o.DeepCopyObject())
		}
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case isRefused(err):
			return err
		}
		if ended := t.sleep(ctx); ended != nil {
			return errors.Join(ended, err)
		}
	}
}

// sleep waits between two reads of an object. It returns an error if ctx has ended.
func (t *Test) sleep(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(t.Poll):
		return nil
	}
}

// installer returns the container installer of an agent on one of the nodes or, if none runs there, on
// any node. If no agent runs at all, it returns the container in a DaemonSet.
func (t *Test) installer(ctx context.Context, nodes []fleet.Node) (corev1.Container, error) {
	for _, node := range append(nodes, t.Fleet.Nodes...) {
		if node.Agent == "" {
			continue
		}
		pod := &corev1.Pod{}
		if err := t.Client.Get(ctx, t.Fleet.Namespace, node.Agent, pod); err != nil {
			return corev1.Container{}, fmt.Errorf("reading the agent %s: %w", node.Agent, err)
		}
		return installerOf(pod.Spec)
	}
	if len(t.Fleet.DaemonSets) == 0 {
		return corev1.Container{}, errors.New("finding the agents' image and configuration: no agent runs")
	}
	name, set := t.Fleet.DaemonSets[0].Name, &appsv1.DaemonSet{}
	if err := t.Client.Get(ctx, t.Fleet.Namespace, name, set); err != nil {
		return corev1.Container{}, fmt.Errorf("no agent runs; reading DaemonSet %s: %w", name, err)
	}
	return installerOf(set.Spec.Template.Spec)
}

func installerOf(pod corev1.PodSpec) (corev1.Container, error) {
	i := slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == fleet.InstallerContainer })
	if i < 0 {
		return corev1.Container{}, errors.New("the agent's pod has no container " + fleet.InstallerContainer)
	}
	return pod.Containers[i], nil
}

// settings returns the plugin's configuration, as the chart gave it to an agent.
func settings(installer corev1.Container) (settings config.NetConf, err error) {
	var keys map[string]json.RawMessage
	err = json.Unmarshal([]byte(fleet.NetConf(installer)), &keys)
	delete(keys, "backend") // the plugin does not know "auto"
	given, _ := json.Marshal(keys)
	input, readErr := config.Read(given)
	if err = cmp.Or(err, readErr); err == nil {
		settings, _, err = input.NetConf() // the agents already report unknown keys
	}
	if err == nil && !slices.Contains(settings.Capture.Meshes, form.name) {
		err = fmt.Errorf("netconf.meshes has no %s, and the test's pods are in that mesh", form.name)
	}
	if err != nil {
		return settings, fmt.Errorf("reading the agents' variable %s: %w", fleet.NetConfVariable, err)
	}
	return settings, nil
}

// permissionHint is the next step after a refused creation. It names the ClusterRole that permits the
// creation of the test's objects.
const permissionHint = "if a permission is missing: bind the ClusterRole capture-cni-operator-test (testRole.enabled=true in the chart)"

// isRefused reports whether the API server refused a request, for example because of a missing
// permission, a quota or an admission rule, so that the request changed nothing. After other errors,
// such as a timeout of etcd, the request may have succeeded.
func isRefused(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) || apierrors.IsTooManyRequests(err) {
		return false
	}
	code := answer.Status().Code
	return 400 <= code && code < 500
}
