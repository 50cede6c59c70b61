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
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/capture-cni/capture-cni/deploy/fleet"
)

// Labels and the annotation of the objects that a test creates.
const (
	selector        = "app.kubernetes.io/name=capture-cni,app.kubernetes.io/component=test"
	untilAnnotation = "test.capture-cni.io/until" // time from which another test removes the object
)

func testMeta(namespace, name string, until time.Time) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace:   namespace,
		Name:        name,
		Labels:      map[string]string{"app.kubernetes.io/name": "capture-cni", "app.kubernetes.io/component": "test"},
		Annotations: map[string]string{untilAnnotation: until.UTC().Format(time.RFC3339)},
	}
}

// nameForm is the form of the names of a test's namespaces and, in an existing namespace, of its pods
// and Services. removeLeftovers removes an object only if its name has this form, because a label does
// not prove that a test created the object.
var nameForm = regexp.MustCompile(`^capture-cni-test-[a-z2-7]{6}-(redirect|tproxy)(-(client|server))?$`)

// newID returns the random part of the names of the objects for one pair of nodes.
func newID() string { return strings.ToLower(rand.Text()[:6]) }

// newNamespace returns the namespace for a mode, in which Istio's injector changes no pods. Its Pod
// Security level is restricted or, with TPROXY, whose proxy needs NET_ADMIN, privileged.
func newNamespace(name string, mode Mode, until time.Time) *corev1.Namespace {
	namespace := &corev1.Namespace{ObjectMeta: testMeta("", name, until)}
	namespace.Labels[form.notInjected[0]] = form.notInjected[1]
	namespace.Labels["pod-security.kubernetes.io/enforce"] = "restricted"
	if mode == TProxy {
		namespace.Labels["pod-security.kubernetes.io/enforce"] = "privileged"
	}
	return namespace
}

// removeLeftovers removes the objects that earlier tests left, for example because they were killed. It
// returns a note about each object with the labels of a test, whether removed or not.
func (t *Test) removeLeftovers(ctx context.Context) (notes []string) {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	found, err := t.leftovers(ctx)
	if err != nil {
		return []string{"looking for objects of earlier tests failed: " + err.Error()}
	}
	for _, left := range found {
		what := kindOf(left) + " " + strings.TrimPrefix(left.GetNamespace()+"/"+left.GetName(), "/")
		until, err := time.Parse(time.RFC3339, left.GetAnnotations()[untilAnnotation])
		if err != nil || !nameForm.MatchString(left.GetName()) {
			notes = append(notes, what+" has the labels of a test, but not the name and the date that a test gives: it was left alone; "+
				"take the labels off, or delete it by hand")
			continue
		}
		if time.Now().Before(until) {
			notes = append(notes, fmt.Sprintf("%s is of another test, which may need it until %s", what, until.Format(time.RFC3339)))
			continue
		}
		t.Progress("removing %s, which an earlier test left", what)
		note := what + " of an earlier test was removed"
		if err := t.remove(ctx, left); err != nil {
			note = "an earlier test left " + what + ": " + err.Error()
		}
		notes = append(notes, note)
	}
	return notes
}

// leftovers returns the namespaces with the labels of a test or, if the test has an existing namespace,
// the pods and Services with these labels in it.
func (t *Test) leftovers(ctx context.Context) (found []object, err error) {
	lists := []runtime.Object{&corev1.NamespaceList{}}
	if t.Namespace != "" {
		lists = []runtime.Object{&corev1.PodList{}, &corev1.ServiceList{}}
	}
	ofTests := metav1.ListOptions{LabelSelector: selector}
	for _, list := range lists {
		err = errors.Join(err, fleet.Each(ctx, t.Client, t.Namespace, list, ofTests, func(o object) { found = append(found, o) }))
	}
	return found, err
}
