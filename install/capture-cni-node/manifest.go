// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"sigs.k8s.io/yaml"
)

// readPod reads a file with the manifest of one pod, in YAML or JSON. It accepts what the
// API server accepts, and only warns of fields that it does not know: the API server may be
// newer.
func readPod(file string, warnings io.Writer) (*corev1.Pod, error) {
	content, err := os.ReadFile(file)
	var documents [][]byte
	for text := range strings.SplitSeq("\n"+string(content), "\n---") {
		document, syntaxErr := yaml.YAMLToJSONStrict([]byte(text))
		if err = errors.Join(err, syntaxErr); string(document) != "null" {
			documents = append(documents, document)
		}
	}
	if err == nil && len(documents) != 1 {
		err = fmt.Errorf("expected one pod, found %d documents", len(documents))
	}
	if err == nil {
		err = checkObject(documents[0])
	}
	scheme, pod := runtime.NewScheme(), &corev1.Pod{}
	if err = errors.Join(err, corev1.AddToScheme(scheme)); err == nil {
		strictly := serializer.SerializerOptions{Strict: true}
		_, _, err = serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, scheme, scheme, strictly).Decode(documents[0], nil, pod)
	}
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		for _, unknown := range strict.Errors() {
			fmt.Fprintf(warnings, "warning: %s: %v, which has no effect here\n", file, unknown)
		}
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the pod: %w", err)
	}
	return pod, nil
}

// checkObject names what the decoder's errors don't: the kind of an object that is no pod,
// and the key of a value that is no string.
func checkObject(document []byte) error {
	var object struct {
		Kind     string
		Metadata struct{ Annotations, Labels map[string]json.RawMessage }
	}
	if err := json.Unmarshal(document, &object); err != nil {
		return fmt.Errorf("expected a pod's manifest: %w", err)
	}
	if object.Kind != "" && object.Kind != "Pod" {
		const hint = `such as an item of a List, or the spec.template of a workload with "kind: Pod" added`
		return fmt.Errorf("the kind is %q: expected Pod, %s", object.Kind, hint)
	}
	var faults []error
	for _, values := range []map[string]json.RawMessage{object.Metadata.Annotations, object.Metadata.Labels} {
		for _, key := range slices.Sorted(maps.Keys(values)) {
			if value := string(values[key]); value[0] != '"' && value != "null" {
				faults = append(faults, fmt.Errorf("%s is %s: expected a string, so put it in quotes", key, value))
			}
		}
	}
	return errors.Join(faults...)
}
