// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	goyaml "go.yaml.in/yaml/v2"
	kubejson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// maxSize limits the bytes of a file, and of its content with YAML's aliases replaced by their values.
const maxSize = 8 << 20

// documents returns the objects of a file. It ignores empty documents.
func documents(content []byte) (objects []map[string]any, err error) {
	if len(content) > maxSize {
		return nil, fmt.Errorf("expected at most %d MiB", maxSize>>20)
	}
	left := maxSize
	for document := range strings.SplitSeq("\n"+string(content), "\n---") {
		texts, isJSON := values(document)
		if !isJSON {
			if err := checkAliases(document, &left); err != nil {
				return nil, err
			}
			converted, err := yaml.YAMLToJSONStrict([]byte(document))
			if err != nil {
				return nil, err
			}
			texts = []json.RawMessage{converted}
		}
		for _, text := range texts {
			var value any
			duplicates, err := kubejson.UnmarshalStrict(text, &value)
			if err := errors.Join(append(duplicates, err)...); err != nil {
				return nil, err
			}
			object, isObject := value.(map[string]any)
			if !isObject && value != nil {
				return nil, errors.New("expected objects with a kind, such as a Pod or a Deployment")
			}
			if isObject {
				objects = append(objects, object)
			}
		}
	}
	return objects, nil
}

// values reports whether a document is JSON that begins with an object, and returns its values, of which
// it can contain several in a row. Such JSON does not go to the YAML parser, which rejects some of JSON's
// escapes.
func values(document string) (texts []json.RawMessage, isJSON bool) {
	if !strings.HasPrefix(strings.TrimSpace(document), "{") {
		return nil, false
	}
	for decoder := json.NewDecoder(strings.NewReader(document)); ; {
		var text json.RawMessage
		switch err := decoder.Decode(&text); {
		case errors.Is(err, io.EOF):
			return texts, true
		case err != nil:
			return nil, false
		}
		texts = append(texts, text)
	}
}

// checkAliases subtracts the size of a document, with its aliases replaced by their values, from left.
// It returns an error if left becomes negative, because a few lines with aliases can describe gigabytes,
// and if the document contains more than one object.
func checkAliases(document string, left *int) error {
	decoder := goyaml.NewDecoder(strings.NewReader(document))
	var value, second any
	if err := decoder.Decode(&value); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if *left -= size(value); *left < 0 {
		return fmt.Errorf("expected at most %d MiB with all aliases replaced by their values", maxSize>>20)
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return errors.New("expected a line --- before each further object")
	}
	return nil
}

// size returns the approximate length of a value's JSON.
func size(value any) int {
	total := len(`"",`)
	switch value := value.(type) {
	case string:
		total += len(value)
	case []any:
		for _, item := range value {
			total += size(item)
		}
	case map[any]any:
		for key, item := range value {
			total += size(key) + size(item)
		}
	}
	return total
}
