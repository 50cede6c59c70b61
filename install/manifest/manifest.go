// SPDX-License-Identifier: Apache-2.0

// Package manifest reads pods, and the templates of pods in other objects, from files.
package manifest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	kubejson "sigs.k8s.io/json"
)

// Pod is a pod of a file, or one that an object's template describes.
type Pod struct {
	*corev1.Pod
	Owner   string // kind, namespace and name of the object in the file
	Created bool   // the API server created the pod, so no injector changes it any more
}

// File contains the result of Read.
type File struct {
	Pods     []Pod
	Others   int      // objects without pods
	Warnings []string // about unknown fields, which a newer API server may know
}

// Read reads a file, or stdin for the name "-", with any number of objects in YAML or JSON. It returns
// an error for a duplicate key, and adds a warning for an unknown field of a pod.
func Read(name string, stdin io.Reader) (*File, error) {
	in := stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("reading a manifest: %w", err)
		}
		defer file.Close()
		in = file
	}
	content, err := io.ReadAll(io.LimitReader(in, maxSize+1))
	f := &File{}
	if err == nil {
		err = f.read(content)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the manifests in %s: %w", name, err)
	}
	return f, nil
}

func (f *File) read(content []byte) error {
	objects, err := documents(content)
	for i := 0; i < len(objects) && err == nil; i++ {
		err = f.add(objects[i])
	}
	return err
}

// add adds the pods of an object to the File. The object can be a list of objects.
func (f *File) add(object map[string]any) (err error) {
	kind, version := text(object, "kind"), text(object, "apiVersion")
	if items := list(object, "items"); items != nil && (kind == "" || strings.HasSuffix(kind, "List")) {
		for i := 0; i < len(items) && err == nil; i++ {
			item, _ := items[i].(map[string]any)
			err = f.add(item)
		}
		return err
	}
	if kind == "Pod" && (version == "" || version == "v1") || kind == "" && list(object, "spec", "containers") != nil {
		return f.addPod(object, object)
	}
	for _, path := range [][]string{{"spec", "template"}, {"spec", "jobTemplate", "spec", "template"}} {
		if template, _ := at(object, path...).(map[string]any); list(template, "spec", "containers") != nil {
			return f.addPod(object, template)
		}
	}
	f.Others++
	return nil
}

// addPod adds a pod to the File: the object itself, or the template in the object.
func (f *File) addPod(object, pod map[string]any) error {
	name := cmp.Or(text(object, "metadata", "name"), text(object, "metadata", "generateName"), "without a name")
	namespace := text(object, "metadata", "namespace")
	owner := cmp.Or(text(object, "kind"), "Pod") + " " + strings.TrimPrefix(namespace+"/"+name, "/")
	var decoded corev1.Pod
	document, err := json.Marshal(pod)
	if err = errors.Join(err, checkStrings(pod)); err == nil {
		var unknown []error
		unknown, err = kubejson.UnmarshalStrict(document, &decoded, kubejson.DisallowUnknownFields)
		for _, field := range unknown {
			f.Warnings = append(f.Warnings, fmt.Sprintf("%s: %v, which has no effect here", owner, field))
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", owner, err)
	}
	decoded.Namespace = namespace
	f.Pods = append(f.Pods, Pod{Pod: &decoded, Owner: owner, Created: decoded.UID != ""})
	return nil
}

// checkStrings returns an error that names each annotation or label whose value is no string, because
// the decoder's error does not name the key.
func checkStrings(pod map[string]any) error {
	var faults []error
	for _, field := range []string{"annotations", "labels"} {
		values, _ := at(pod, "metadata", field).(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(values)) {
			if _, isString := values[key].(string); !isString && values[key] != nil {
				value, _ := json.Marshal(values[key]) // the value was just decoded
				faults = append(faults, fmt.Errorf("%s is %s: expected a string, so put it in quotes", key, value))
			}
		}
	}
	return errors.Join(faults...)
}

// at returns the value of the field at a path, or nil if it does not exist.
func at(object map[string]any, path ...string) any {
	var value any = object
	for _, name := range path {
		fields, _ := value.(map[string]any)
		value = fields[name]
	}
	return value
}

func text(object map[string]any, path ...string) string {
	value, _ := at(object, path...).(string)
	return value
}

func list(object map[string]any, path ...string) []any {
	value, _ := at(object, path...).([]any)
	return value
}
