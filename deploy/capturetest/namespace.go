// SPDX-License-Identifier: Apache-2.0

package capturetest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Labels and annotation of what a test creates.
const (
	selector        = "app.kubernetes.io/name=capture-cni,app.kubernetes.io/component=test"
	untilAnnotation = "capture-cni.io/test-until" // when the test has ended, whatever happened
)

func testMeta(name string, until time.Time) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name:        name,
		Labels:      map[string]string{"app.kubernetes.io/name": "capture-cni", "app.kubernetes.io/component": "test"},
		Annotations: map[string]string{untilAnnotation: until.UTC().Format(time.RFC3339)},
	}
}

// nameForm is that of what a test creates. Labels alone are no proof: any namespace can
// have them.
var nameForm = regexp.MustCompile(`^capture-cni-test-[a-z2-7]{6}-(redirect|tproxy)(-(client|server))?$`)

// newID returns what distinguishes the names of one test.
func newID() string { return strings.ToLower(rand.Text()[:6]) }

// place is where the pods of a mode run: a namespace of the mode's own, or one that exists.
type testNamespace struct {
	cluster   *Cluster
	namespace string
	own       bool
	pods      []string
	services  []string
}

// newNamespace returns the namespace for a mode. No injector of Istio changes its pods, and
// Pod Security enforces as much as the mode allows: the proxy of TPROXY needs NET_ADMIN.
func newNamespace(name string, mode Mode, until time.Time) *corev1.Namespace {
	namespace := &corev1.Namespace{ObjectMeta: testMeta(name, until)}
	namespace.Labels["istio-injection"] = "disabled"
	namespace.Labels["pod-security.kubernetes.io/enforce"] = "restricted"
	if mode == TProxy {
		namespace.Labels["pod-security.kubernetes.io/enforce"] = "privileged"
	}
	return namespace
}

// mayExist reports whether an object can exist after its creation, which can have failed
// with an error of the connection.
func mayExist(err error) bool { return !isRefused(err) }

// remove deletes what was created, and waits until it is gone.
func (p *testNamespace) remove(ctx context.Context) error {
	if p.own {
		err := p.cluster.remove(ctx, "", "namespaces", p.namespace, &corev1.Namespace{})
		if err != nil {
			return fmt.Errorf("removing namespace %s: %w; once its nodes are up: kubectl delete namespace %s", p.namespace, err, p.namespace)
		}
		return nil
	}
	var errs []error
	for _, name := range p.services {
		errs = append(errs, p.cluster.remove(ctx, p.namespace, "services", name, &corev1.Service{}))
	}
	for _, name := range p.pods {
		errs = append(errs, p.cluster.remove(ctx, p.namespace, "pods", name, &corev1.Pod{}))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("removing pods and Services: %w; look at kubectl --namespace %s get pods,services --selector %s", err, p.namespace, selector)
	}
	return nil
}

// removeLeftovers removes what tests left that were killed. It returns notes on what it
// removed, and on what may belong to a test that runs.
func (t *Test) removeLeftovers(ctx context.Context) (notes []string) {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	found, err := t.leftovers(ctx)
	if err != nil {
		return []string{"what an earlier test may have left is not known: " + err.Error()}
	}
	for _, left := range found {
		until, err := time.Parse(time.RFC3339, left.meta.Annotations[untilAnnotation])
		if err != nil || !nameForm.MatchString(left.meta.Name) {
			notes = append(notes, left.place.what()+" has the labels of a test, but not the name and the date that a test gives: it was left alone; take the labels off, or delete it by hand")
			continue
		}
		if time.Now().Before(until) {
			notes = append(notes, fmt.Sprintf("%s is of another test, which may run until %s", left.place.what(), until.Format(time.TimeOnly)))
			continue
		}
		t.Progress("removing %s, which an earlier test left", left.place.what())
		note := left.place.what() + " of an earlier test was removed"
		if err := left.place.remove(ctx); err != nil {
			note = "an earlier test left " + left.place.what() + ": " + err.Error()
		}
		notes = append(notes, note)
	}
	return notes
}

// leftover is an object of another test, and the place that has it alone.
type leftover struct {
	meta  metav1.ObjectMeta
	place testNamespace
}

func (t *Test) leftovers(ctx context.Context) (found []leftover, err error) {
	if t.Namespace == "" {
		namespaces := &corev1.NamespaceList{}
		if err := t.Cluster.list(ctx, "", "namespaces", namespaces); err != nil {
			return nil, err
		}
		for _, n := range namespaces.Items {
			found = append(found, leftover{n.ObjectMeta, testNamespace{cluster: t.Cluster, namespace: n.Name, own: true}})
		}
		return found, nil
	}
	pods, services := &corev1.PodList{}, &corev1.ServiceList{}
	if err := errors.Join(t.Cluster.list(ctx, t.Namespace, "pods", pods), t.Cluster.list(ctx, t.Namespace, "services", services)); err != nil {
		return nil, err
	}
	for _, pod := range pods.Items {
		found = append(found, leftover{pod.ObjectMeta, testNamespace{cluster: t.Cluster, namespace: t.Namespace, pods: []string{pod.Name}}})
	}
	for _, service := range services.Items {
		found = append(found, leftover{service.ObjectMeta, testNamespace{cluster: t.Cluster, namespace: t.Namespace, services: []string{service.Name}}})
	}
	return found, nil
}

// what names a place in words.
func (p *testNamespace) what() string {
	switch {
	case p.own:
		return "namespace " + p.namespace
	case len(p.pods) > 0:
		return "pod " + p.namespace + "/" + p.pods[0]
	}
	return "Service " + p.namespace + "/" + p.services[0]
}
