// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"errors"
	"iter"
	"strings"

	"github.com/capture-cni/capture-cni/config"
)

// Everything returns the selection "*".
func Everything[T any]() Selection[T] { return Selection[T]{All: true} }

// parser parses one element of a list. If the element is wrong, the error contains the expected form.
type parser[T any] func(element string) (T, error)

// parseList parses a comma-separated list, and ignores white space around elements. The error contains
// the first wrong elements, and the number of the others.
func parseList[T any](text string, parse parser[T]) ([]T, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	return parseElements(strings.SplitSeq(text, ","), parse)
}

func parseElements[T any](elements iter.Seq[string], parse parser[T]) (values []T, err error) {
	var faults []string
	for element := range elements {
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

// selectionOf reads an annotation whose value is "*" or a list. If the annotation is absent, it returns
// the selection "*". A wrong list becomes a fault.
func selectionOf[T any](d *decider, key string, parse parser[T]) Selection[T] {
	text, ok := d.pod.Annotations[key]
	if !ok || strings.TrimSpace(text) == "*" {
		return Everything[T]()
	}
	return Selection[T]{Only: listOf(d, key, "", parse)}
}

// listOf reads an annotation whose value is a list. If the annotation is absent, it reads byDefault
// instead. A wrong or too long list becomes a fault.
func listOf[T any](d *decider, key, byDefault string, parse parser[T]) []T {
	text, ok := d.pod.Annotations[key]
	if !ok {
		text = byDefault
	} else if !d.withinLimits(key, text) {
		return nil
	}
	list, err := parseList(text, parse)
	if err != nil {
		d.fault(key, text, "%v", err)
	}
	return list
}

// These limits bound the lists that a pod's author can write, because the plugin and the guard need
// more memory and time for longer lists.
const (
	// maxAnnotation is the largest size of one annotation in bytes. Kubernetes has the same limit for
	// all annotations of a pod together.
	maxAnnotation = 256 << 10

	// maxElements limits the number of elements in all lists of a pod together.
	maxElements = 20_000

	// maxExempt and maxOpenings limit the elements of Intent.Exempt and of Fence.Openings, each of which
	// needs several rules and can need a set. See nfnetlink.MaxOurRules and nfnetlink.MaxSets.
	maxExempt   = 500
	maxOpenings = 400
)

// withinLimits reports whether a list may be parsed. If the list is too long, it adds a fault and
// returns false.
func (d *decider) withinLimits(key, text string) bool {
	if len(text) > maxAnnotation {
		d.fault(key, text, "%d bytes: expected at most %d", len(text), maxAnnotation)
		return false
	}
	d.elements += strings.Count(text, ",") + 1
	if d.elements > maxElements {
		d.fault(key, text, "expected at most %d elements in all lists of a pod together, got %d", maxElements, d.elements)
		return false
	}
	return true
}
