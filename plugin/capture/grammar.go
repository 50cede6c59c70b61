// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"errors"
	"strings"

	"github.com/capture-cni/capture-cni/config"
)

// Selection is a wildcard or a list: "*" selects everything, an empty list nothing.
type Selection[T any] struct {
	All  bool
	Only []T
}

// Everything returns the selection "*".
func Everything[T any]() Selection[T] { return Selection[T]{All: true} }

// A parser parses one element of a list. Its error says which form it expects.
type parser[T any] func(element string) (T, error)

// parseList parses a comma-separated list. White space around elements is ignored.
// The error names the first faulty elements and counts the others.
func parseList[T any](text string, parse parser[T]) ([]T, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var values []T
	var faults []string
	for element := range strings.SplitSeq(text, ",") {
		value, err := parse(strings.TrimSpace(element))
		if err != nil {
			faults = append(faults, err.Error())
			continue
		}
		values = append(values, value)
	}
	if len(faults) > 0 {
		return values, errors.New(strings.Join(config.Few(faults, "elements are faulty"), "\n"))
	}
	return values, nil
}

func parseSelection[T any](text string, parse parser[T]) (Selection[T], error) {
	if strings.TrimSpace(text) == "*" {
		return Everything[T](), nil
	}
	only, err := parseList(text, parse)
	return Selection[T]{Only: only}, err
}
